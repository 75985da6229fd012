#include "instantiate/overlay.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "base/text.hpp"
#include "kiln/error.hpp"
#include "overlay/cut.hpp"

namespace kiln::source {
namespace {

constexpr std::size_t kMostBytes = std::size_t{64} << 20;

std::string_view root_of(std::string_view symbolic) { return symbolic.substr(0, symbolic.find('/')); }

bool is_cut(const Closure& closure, const ClosureFile& file) {
  if (file.toolkit || file.via_toolkit) return false;
  return std::none_of(closure.roots.begin(), closure.roots.end(),
                      [&](const Root& root) { return root.own && root.name == root_of(file.symbolic); });
}

CutRules rules_of(const Instantiation& unit) {
  CutRules out{unit.name_expressions(), unit.compile.keep, unit.compile.cut, {}, unit.compile.cut_unused};
  for (const NamedText& exported : unit.exports) out.roots.push_back(exported.cpp);
  for (const auto& [name, text] : unit.compile.define) out.roots.push_back(text);
  return out;
}

}  // namespace

Overlay overlay_of(const Instantiation& unit, const Closure& closure) {
  Overlay out;
  if (!unit.compile.cut_host_code) {
    out.source = unit.source;
    return out;
  }
  std::vector<const ClosureFile*> files;
  std::vector<std::string> contents;
  for (const ClosureFile& file : closure.files) {
    if (!is_cut(closure, file)) continue;
    auto content = base::read_file(file.path, kMostBytes);
    if (!content)
      throw Error(Errc::source, "cannot read " + base::quote(file.path, 4096) + ": " + std::strerror(errno));
    files.push_back(&file);
    contents.push_back(std::move(content->bytes));
  }
  // The macros of `define` may stand for execution spaces.
  std::string macros;
  for (const auto& [name, text] : unit.compile.define) macros += "#define " + name + ' ' + text + '\n';
  std::vector<std::string_view> texts(contents.begin(), contents.end());
  texts.push_back(unit.source);
  texts.push_back(macros);
  CutRules rules = rules_of(unit);
  for (const ClosureFile* file : files) rules.paths.push_back(file->path);
  CutTexts result = cut_host_code(texts, rules);
  out.cut = std::move(result.names);
  out.unmarked = result.unmarked;
  out.source = std::move(result.texts[files.size()]);

  // A file that two search directories lead to is one file for #pragma once.
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> written;
  std::set<std::string_view> folders;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (result.texts[i] == contents[i]) continue;
    folders.insert(root_of(files[i]->symbolic));
    const auto [first, fresh] =
        written.try_emplace({files[i]->stamp.device, files[i]->stamp.inode}, files[i]->symbolic);
    if (fresh)
      out.files.emplace_back(files[i]->symbolic, std::move(result.texts[i]));
    else
      out.beside.emplace_back(files[i]->symbolic, first->second);
  }
  for (const ClosureFile& file : closure.files) {
    const bool cut = written.contains({file.stamp.device, file.stamp.inode});
    if (!cut && folders.contains(root_of(file.symbolic))) out.beside.emplace_back(file.symbolic, file.path);
  }
  return out;
}

std::string host_code_text(const CompileSpec& compile) {
  std::string out = compile.cut_unused ? "cut-unused" : "cut";
  out += " (version " + std::string(kCutVersion);
  if (!compile.keep.empty()) out += ", keep " + base::join(compile.keep, " ");
  if (!compile.cut.empty()) out += ", cut " + base::join(compile.cut, " ");
  return out + ')';
}

}  // namespace kiln::source

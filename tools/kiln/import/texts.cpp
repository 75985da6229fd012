#include "tools/kiln/import/texts.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "closure/closure.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostSourceBytes = std::size_t{16} << 20;

std::string text_of(const std::string& file) {
  const auto content = base::read_file(file, kMostSourceBytes);
  if (!content) throw Error(Errc::io, "cannot read " + base::quote(file, 4096) + ": " + std::strerror(errno));
  return content->bytes;
}

}  // namespace

SourceTexts read_texts(const ImportAsked& asked) {
  SourceTexts out;
  const std::string text = text_of(asked.file);
  out.add(asked.file, text);
  std::vector<std::string> searched;
  for (const auto* list : {&asked.stub_dirs, &asked.include_dirs})
    for (const std::string& directory : *list)
      searched.push_back(base::absolute(directory).value_or(directory));
  // A source that includes "../x.h" is read from a directory above it, as the compile reads it.
  const fs::path file = fs::absolute(asked.file).lexically_normal();
  std::vector<std::string> roots = searched;
  roots.push_back(file.parent_path().string());
  roots.push_back(file.parent_path().parent_path().string());
  for (const std::string& root : roots) {
    const std::string name = file.lexically_relative(fs::path(root).lexically_normal()).generic_string();
    if (name.empty() || name.starts_with("..")) continue;
    source::SearchPath search;
    search.project = {root};
    search.project.insert(search.project.end(), searched.begin(), searched.end());
    try {
      source::ScanCache cache;
      const auto closure = source::scan_closure("#include <" + name + ">\n", {}, search, cache);
      for (const source::ClosureFile& header : closure.files)
        if (fs::path(header.path).lexically_normal() != file) out.add(header.path, text_of(header.path));
      break;
    } catch (const Error&) {  // the compile tells what is wrong with an include
    }
  }
  return out;
}

}  // namespace kiln::cli

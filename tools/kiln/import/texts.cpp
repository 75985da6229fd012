#include "tools/kiln/import/texts.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "closure/closure.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;
using source::Declaration;
using source::DeclarationKind;

constexpr std::size_t kMostSourceBytes = std::size_t{16} << 20;

std::string read_source(const std::string& file) {
  const auto content = base::read_file(file, kMostSourceBytes);
  if (!content) throw Error(Errc::io, "cannot read " + base::quote(file, 4096) + ": " + std::strerror(errno));
  return content->bytes;
}

/// Reads directives in the order of the preprocessor: the names of #include, and the branches that are seen.
class IncludeWalk {
 public:
  IncludeWalk(std::deque<SourceText>& texts, const Assignments& define) : texts_(texts) {
    for (const auto& [name, text] : define) conditions_.define(name, text);
  }
  std::set<std::string> run() {
    read(0);
    return std::move(found_);
  }

 private:
  void read(std::size_t at) {
    if (!read_.insert(at).second) return;
    const std::size_t outer = conditions_.depth();
    texts_[at].branches[0] = conditions_.now();
    for (std::size_t i = 0; i < texts_[at].tokens.size(); ++i) {
      const Token& t = texts_[at].tokens[i];
      if (t.kind != Token::Kind::directive) continue;
      const source::DirectiveText d = source::directive_text(t.text);
      conditions_.directive(d);
      texts_[at].branches[i] = conditions_.now();
      const std::size_t open = d.rest.find_first_of("\"<");
      if (d.name != "include" || !conditions_.active() || open == d.rest.npos) continue;
      const std::size_t close = d.rest.find(d.rest[open] == '<' ? '>' : '"', open + 1);
      if (close != d.rest.npos) include(std::string(d.rest.substr(open + 1, close - open - 1)));
    }
    conditions_.leave(outer);
  }
  void include(const std::string& name) {
    found_.insert(name);
    std::string end = '/' + name;
    while (end.starts_with("/../") || end.starts_with("/./")) end.erase(0, end.find('/', 1));
    for (std::size_t i = 0; i < texts_.size(); ++i)
      if (texts_[i].path.ends_with(end)) read(i);
  }

  std::deque<SourceText>& texts_;
  Conditions conditions_;
  std::set<std::size_t> read_;
  std::set<std::string> found_;
};

}  // namespace

int SourceText::line_of(const Token& token) const {
  const auto at = static_cast<std::size_t>(token.text.data() - text.data());
  const auto line = std::lower_bound(line_ends.begin(), line_ends.end(), at) - line_ends.begin();
  return first_line + static_cast<int>(line);
}

Conditions::Truth SourceText::is_seen(std::size_t token) const {
  const auto after = branches.upper_bound(token);
  return after == branches.begin() ? Conditions::Truth::maybe : std::prev(after)->second;
}

std::string SourceText::place_of(const Token& token) const {
  return path.substr(path.rfind('/') + 1) + ':' + std::to_string(line_of(token));
}

SourceTexts::SourceTexts(std::vector<File> files, Assignments define, std::string unread)
    : define_(std::move(define)), unread_(std::move(unread)) {
  std::string macros;
  for (const auto& [name, text] : define_) macros += "#define " + name + ' ' + text + '\n';
  files.emplace_back("", macros);
  for (auto& [path, text] : files) add(std::move(path), std::move(text), 1);
  for (SourceText& text : texts_) text.declarations = source::outline_of(text.text, text.tokens, macros_);
  included_ = IncludeWalk(texts_, define_).run();
  expand_kernels();
}

void SourceTexts::add(std::string path, std::string text, int first_line) {
  SourceText& added = texts_.emplace_back();
  added.path = std::move(path);
  added.text = std::move(text);
  added.first_line = first_line;
  added.tokens = source::tokens_of(added.text);
  for (std::size_t at = 0; (at = added.text.find('\n', at)) != std::string::npos; ++at)
    added.line_ends.push_back(at);
  macros_.add(added.tokens);
}

/// Adds a text for each kernel whose declaration is a call of a macro.
void SourceTexts::expand_kernels() {
  std::size_t left = kMostSourceBytes;
  const std::size_t files = texts_.size();
  for (std::size_t i = 0; i < files; ++i) {
    const SourceText& from = texts_[i];
    for (const Declaration& d : from.declarations) {
      const Token& first = from.tokens[d.tokens.begin];
      const bool function = d.kind == DeclarationKind::function && macros_.declares_kernel(d.names.back());
      if (!function && !(d.kind == DeclarationKind::call && macros_.declares_kernel(first.text))) continue;
      std::string text = macros_.expanded(std::string_view(from.text).substr(d.begin, d.end - d.begin));
      if (!d.scope.empty()) text = "namespace " + d.scope + " {" + text + '}';
      if (text.size() > left) return;
      left -= text.size();
      add(from.path, std::move(text), from.line_of(first));
      texts_.back().declarations = source::outline_of(texts_.back().text, texts_.back().tokens, macros_);
    }
  }
}

SourceTexts read_texts(const ImportAsked& asked, const ImportSite& site, const Assignments& define) {
  std::vector<SourceTexts::File> files{{asked.file, read_source(asked.file)}};
  const fs::path directory = site.place.directory, file = fs::absolute(asked.file).lexically_normal();
  source::SearchPath search;
  search.project = {(directory / site.place.source).parent_path().string(), directory.string()};
  for (const std::string& searched : site.include_dirs)
    search.project.push_back((directory / searched).string());
  std::string unread;
  try {
    source::ScanCache cache;
    const std::string& text = site.place.text.empty() ? files[0].second : site.place.text;
    for (const source::ClosureFile& header : source::scan_closure(text, {}, search, cache).files)
      if (std::error_code error; !fs::equivalent(header.path, file, error))
        files.emplace_back(header.path, read_source(header.path));
  } catch (const Error& error) {
    unread = error.what();
    files.resize(1);
  }
  return {std::move(files), define, std::move(unread)};
}

}  // namespace kiln::cli

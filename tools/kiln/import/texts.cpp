#include "tools/kiln/import/texts.hpp"

#include <cerrno>
#include <cstring>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "closure/closure.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

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
  source::SearchPath search;
  search.project.push_back(base::absolute(base::directory_of(asked.file)).value_or("."));
  for (const auto* list : {&asked.stub_dirs, &asked.include_dirs})
    for (const std::string& directory : *list)
      search.project.push_back(base::absolute(directory).value_or(directory));
  out.add(asked.file, text);
  try {
    source::ScanCache cache;
    for (const source::ClosureFile& file : source::scan_closure(text, {}, search, cache).files)
      out.add(file.path, text_of(file.path));
  } catch (const Error&) {
  }
  return out;
}

}  // namespace kiln::cli

#include "closure/include_search.hpp"

#include <sys/stat.h>

#include <algorithm>

#include "base/quote.hpp"
#include "kiln/error.hpp"

namespace kiln::source {
namespace {

constexpr std::size_t kMaxFiles = 50'000;  // a symlink to its own directory makes endless names

bool has_dots(std::string_view name) {
  return name.starts_with("../") || name.find("/../") != std::string_view::npos || name.ends_with("/..") ||
         name == "..";
}
bool leaves(std::string_view normal) { return normal == ".." || normal.starts_with("../"); }
std::string normal(const std::string& name) {
  const bool already =
      name.find("./") == std::string::npos && name.find("//") == std::string::npos && !name.ends_with('.');
  return already ? name : base::normalized(name);
}
bool same_file(const std::string& a, const std::string& b) {
  struct stat x, y;
  return ::stat(a.c_str(), &x) == 0 && ::stat(b.c_str(), &y) == 0 && x.st_dev == y.st_dev &&
         x.st_ino == y.st_ino;
}

}  // namespace

std::string spelling_of(const IncludeDirective& include) {
  return include.quoted ? '"' + include.name + '"' : '<' + include.name + '>';
}

IncludeSearch::IncludeSearch(const SearchPath& search, ScanCache& cache, Trust trust)
    : replace_(search.replace), directories_(search), cache_(cache), trust_(trust) {}

/// The directive that [compile] replace makes of `include`; null when it makes none. The compiler takes a
/// header in memory for an #include_next, too.
const IncludeDirective* IncludeSearch::replacement(const IncludeDirective& include) {
  for (const auto& [name, file] : replace_) {
    if (name != include.name) continue;
    replaced_ = {file, false, false};
    return &replaced_;
  }
  return nullptr;
}

const std::vector<std::size_t>& IncludeSearch::find(const IncludeDirective& written, std::size_t includer) {
  found_.clear();
  const IncludeDirective* replaced = replacement(written);
  const IncludeDirective& include = replaced ? *replaced : written;
  if (include.quoted && !include.next && includer != kNoFile) {
    const Origin& location = origins_[includer];
    const std::size_t folder = location.relative.rfind('/') + 1;  // npos + 1 is 0
    const std::size_t file =
        look(location.directory, location.relative.substr(0, folder) + include.name, includer);
    if (file != kNoFile) {
      found_.push_back(file);
      return found_;
    }
  }
  if (!include.next) {
    if (const auto known = by_name_.find(include.name); known != by_name_.end()) {
      if (known->second != kNoFile) found_.push_back(known->second);
      return found_;
    }
  }
  for (std::size_t d = 0; d < directories_.list().size() && (found_.empty() || include.next); ++d) {
    if (const std::size_t file = look(d, include.name, includer); file != kNoFile) found_.push_back(file);
  }
  if (replaced && found_.empty()) {
    throw Error(Errc::source, name_of(includer) + " includes " + base::quote(spelling_of(written)) +
                                  "; [compile] replace maps it to " + base::quote(replaced->name) +
                                  ", and the search path has no such file");
  }
  if (!include.next) by_name_.emplace(include.name, found_.empty() ? kNoFile : found_[0]);
  return found_;
}

/// The file of that name in that directory; kNoFile when there is none. A new file is added.
std::size_t IncludeSearch::look(std::size_t directory, const std::string& spelling, std::size_t includer) {
  SearchDirectory& in = directories_.at(directory);
  std::string relative = normal(spelling);
  if (has_dots(spelling))
    questions_.depend_on_more(), relative = through_dots(in, spelling, std::move(relative), includer);
  if (relative.empty()) return kNoFile;
  const auto [known, fresh] = in.known.try_emplace(relative, kNoFile);
  if (!fresh) return known->second;
  if (!directories_.may_hold(directory, relative, questions_)) return kNoFile;
  const std::string path = in.path + '/' + relative;
  const auto scanned = read(path, in, spelling, includer);
  questions_.note(Asked::What::file, directory, relative, scanned.has_value());
  if (!scanned) return kNoFile;
  memoised_ = memoised_ || scanned->memoised;
  if (files_.size() >= kMaxFiles) {
    throw Error(Errc::source, "more than " + std::to_string(kMaxFiles) + " included files; the last is " +
                                  base::quote(path, 4096));
  }
  known->second = files_.size();
  files_.push_back({path, directories_.name_of(directory) + '/' + relative, scanned->digest, scanned->stamp,
                    in.toolkit, !in_project_, scanned->settled});
  origins_.push_back({directory, std::move(relative), scanned->scan});
  return known->second;
}

std::optional<ScanCache::Scanned> IncludeSearch::read(const std::string& path, const SearchDirectory& in,
                                                      const std::string& spelling,
                                                      std::size_t includer) const {
  try {
    return cache_.look(path, in.toolkit, trust_);
  } catch (const Error& error) {  // the error names the file, but not its includer
    throw Error(error.code(), name_of(includer) + " includes " + base::quote(spelling) + ": " + error.what() +
                                  "; make the file readable, or search another directory before it");
  }
}

/// The path, relative to the directory, of a name with ".."; empty when there is no such file.
/// Throws when a project file leaves the directory that way: the compiler would follow, but the key
/// has no name for that place.
std::string IncludeSearch::through_dots(const SearchDirectory& in, const std::string& spelling,
                                        std::string relative, std::size_t includer) const {
  const std::string root = in.path + '/';
  struct stat st;
  if (::stat((root + spelling).c_str(), &st) != 0 || S_ISDIR(st.st_mode)) return {};
  if (leaves(relative)) {
    if (!in_project_) return relative;
    const std::string target = base::normalized(root + spelling);
    throw Error(Errc::source, name_of(includer) + " includes " + base::quote(spelling) +
                                  ", which leaves its search directory " + base::quote(in.path, 4096) +
                                  "; add " + base::quote(base::directory_of(target), 4096) +
                                  " to include_dirs and include the file from there");
  }
  // After a symlinked directory, ".." leads to another place than the text says.
  return same_file(root + spelling, root + relative) ? relative : spelling;
}

std::string IncludeSearch::name_of(std::size_t file) const {
  return file == kNoFile ? "the template's source" : base::quote(files_[file].symbolic, 4096);
}

}  // namespace kiln::source

#include "closure/search_directories.hpp"

#include <sys/stat.h>

#include <algorithm>

namespace kiln::source {

SearchDirectories::SearchDirectories(const SearchPath& search) {
  const auto add = [&](const std::string& path, bool toolkit) {
    if (std::any_of(list_.begin(), list_.end(), [&](const SearchDirectory& d) { return d.path == path; }))
      return;
    struct stat st;
    if (::stat(path.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) return;
    const bool known = std::any_of(list_.begin(), list_.end(), [&](const SearchDirectory& d) {
      return d.device == st.st_dev && d.inode == st.st_ino;
    });
    const bool own = std::find(search.own.begin(), search.own.end(), path) != search.own.end();
    if (!known) list_.push_back({path, toolkit, own, st.st_dev, st.st_ino, {}, {}, {}});
  };
  // The toolkit is first: a project directory that is also a toolkit directory is dropped.
  for (const std::string& path : search.toolkit) add(path, true);
  const auto toolkit = static_cast<std::ptrdiff_t>(list_.size());
  for (const std::string& path : search.project) add(path, false);
  std::rotate(list_.begin(), list_.begin() + toolkit, list_.end());
}

/// For a toolkit directory, only the first folder of a name is checked. CUB's closure asks for 2,000 names
/// that begin with a folder which most directories lack. For a project directory the whole folder is checked.
/// Project headers include each other by names such as "kiln/types.cuh", which are searched beside the
/// includer first. There the folder "kiln/kiln" is missing.
bool SearchDirectories::may_hold(std::size_t directory, const std::string& relative, Questions& questions) {
  SearchDirectory& in = list_[directory];
  const auto slash = in.toolkit ? relative.find('/') : relative.rfind('/');
  if (slash == std::string::npos || slash == 0) return true;
  const auto [known, fresh] = in.folders.try_emplace(relative.substr(0, slash), false);
  if (fresh) {
    struct stat st;
    known->second = ::stat((in.path + '/' + known->first).c_str(), &st) == 0;
    questions.note(Asked::What::folder, directory, known->first, known->second);
  }
  return known->second;
}

const std::string& SearchDirectories::name_of(std::size_t directory) {
  SearchDirectory& root = list_[directory];
  if (root.name.empty())
    root.name =
        root.toolkit ? ".t" + std::to_string(toolkit_roots_++) : ".k" + std::to_string(project_roots_++);
  return root.name;
}

std::vector<Root> SearchDirectories::roots(bool all) {
  std::vector<Root> out;
  for (std::size_t d = 0; d < list_.size(); ++d) {
    const SearchDirectory& directory = list_[d];
    if (all) name_of(d);
    if (!directory.name.empty())
      out.push_back({directory.name, directory.path, directory.toolkit, directory.own});
  }
  return out;
}

}  // namespace kiln::source

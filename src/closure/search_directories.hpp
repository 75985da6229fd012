// The directories in which includes are searched, and their symbolic names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "closure/closure.hpp"
#include "closure/questions.hpp"

namespace kiln::source {

struct SearchDirectory {
  std::string path;
  bool toolkit = false, own = false;
  std::uint64_t device = 0, inode = 0;
  std::string name;                                    ///< empty until the directory is used
  std::unordered_map<std::string, std::size_t> known;  ///< relative name -> file, or kNoFile
  std::unordered_map<std::string, bool> folders;       ///< folder of a relative name -> exists
};

/// The existing directories of a search path without repeats, project before toolkit.
class SearchDirectories {
 public:
  explicit SearchDirectories(const SearchPath& search);

  /// In search order.
  const std::vector<SearchDirectory>& list() const noexcept { return list_; }
  SearchDirectory& at(std::size_t directory) { return list_[directory]; }
  /// False when the folder of the name does not exist. Notes the question when the file system was asked.
  bool may_hold(std::size_t directory, const std::string& relative, Questions& questions);
  /// The directory's symbolic name: ".k0", ".k1", ... for the project and ".t0", ... for the
  /// toolkit, by first use.
  const std::string& name_of(std::size_t directory);
  /// Directories in search order: only used ones, or all, which numbers the others, too.
  std::vector<Root> roots(bool all);

 private:
  std::vector<SearchDirectory> list_;
  std::size_t project_roots_ = 0, toolkit_roots_ = 0;
};

}  // namespace kiln::source

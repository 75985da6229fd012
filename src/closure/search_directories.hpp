// The directories that includes are looked for in, and their symbolic names.
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
  bool toolkit = false;
  std::uint64_t device = 0, inode = 0;
  std::string name;                                    ///< empty until used
  std::unordered_map<std::string, std::size_t> known;  ///< relative name -> file, or kNoFile
  std::unordered_map<std::string, bool> folders;       ///< first folder of a relative name -> is there
};

/// The directories of a search path that exist, each once, project before toolkit.
class SearchDirectories {
 public:
  explicit SearchDirectories(const SearchPath& search);

  /// In search order.
  const std::vector<SearchDirectory>& list() const noexcept { return list_; }
  SearchDirectory& at(std::size_t directory) { return list_[directory]; }
  /// False when the folder of the name does not exist. Notes the question when it was asked.
  bool may_hold(std::size_t directory, const std::string& relative, Questions& questions);
  /// Its symbolic name: ".k0", ".k1", ... for the project's and ".t0", ... for the toolkit's, by first use.
  const std::string& name_of(std::size_t directory);
  /// Directories in search order: those used, or all, numbering the rest.
  std::vector<Root> roots(bool all);

 private:
  std::vector<SearchDirectory> list_;
  std::size_t project_roots_ = 0, toolkit_roots_ = 0;
};

}  // namespace kiln::source

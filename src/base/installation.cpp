#include "base/installation.hpp"

#include <algorithm>
#include <filesystem>

#include "base/file.hpp"

/// Defined, through kiln.h, by a program that was built with KILN_INSTALL_PREFIX; null in other programs.
extern "C" const char kiln_install_prefix[] __attribute__((weak));

namespace kiln::base {
namespace {

/// The running program's directory; empty when the system does not tell it.
std::string program_directory() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

class Search {
 public:
  explicit Search(const Installed& installed) : installed_(installed) {}
  void add(std::string candidate) {
    if (std::find(candidates.begin(), candidates.end(), candidate) == candidates.end())
      candidates.push_back(std::move(candidate));
  }
  void add_prefix(const std::string& prefix) { add((prefix == "/" ? "" : prefix) + '/' + installed_.below); }
  /// Adds the candidates around `directory`, which may be lib/ARCH, bin, or the prefix itself.
  void add_around(const std::string& directory) {
    if (directory.empty()) return;
    if (!installed_.beside.empty()) add(directory + '/' + installed_.beside);
    const std::string above = directory_of(directory);
    for (const std::string& prefix : {directory, above, directory_of(above)}) add_prefix(prefix);
  }
  std::vector<std::string> candidates;

 private:
  const Installed& installed_;
};

}  // namespace

std::vector<std::string> candidates_of(const Installed& installed) {
  Search search(installed);
  search.add_around(own_object_directory());
  search.add_around(program_directory());
  if (kiln_install_prefix) search.add_prefix(kiln_install_prefix);
  search.add(installed.configured);
  return std::move(search.candidates);
}

}  // namespace kiln::base

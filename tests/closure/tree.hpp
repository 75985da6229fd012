// A directory of files for one test.
#pragma once

#include <filesystem>
#include <string>

#include "base/file.hpp"

namespace kiln::source {

class Tree {
 public:
  Tree() : directory_("kiln-source-") {}
  std::string path(const std::string& name = "") const {
    return directory_.path() + (name.empty() ? "" : '/' + name);
  }
  /// Writes a file and returns its absolute path.
  std::string write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    base::write_file(path(name), text);
    return path(name);
  }
  void link(const std::string& target, const std::string& name) const {
    std::filesystem::create_directory_symlink(target, path(name));
  }
  void remove(const std::string& name) const { std::filesystem::remove_all(path(name)); }

 private:
  base::TempDir directory_;
};

}  // namespace kiln::source

// Files below an open directory, which no symlink can lead out of it.
#pragma once

#include <string>

#include "base/fd.hpp"

namespace kiln::cli {

/// The directory that a path's last name is in. It is opened name by name and never through a symlink. Paths
/// of the same directory one after the other open it once. Used by one thread.
class Beneath {
 public:
  /// `root` stays open as long as this object lives.
  explicit Beneath(int root) noexcept : root_(root) {}

  /// REQUIRES: is_inside(path). -1, with `errno` set, when a directory of the path is absent or none: ELOOP or
  /// ENOTDIR for a symlink.
  int parent_of(const std::string& path);
  /// The last name of a path.
  static const char* name_of(const std::string& path) noexcept {
    return path.c_str() + (path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1);
  }
  /// Forgets the open directory, after a directory was made or replaced.
  void forget() noexcept { open_.reset(), directory_.clear(); }

 private:
  int root_;
  std::string directory_;  // that `open_` is
  base::Fd open_;
};

}  // namespace kiln::cli

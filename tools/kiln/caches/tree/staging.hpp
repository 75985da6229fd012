// A directory in which a restore writes files before they get their names.
#pragma once

#include <string>

#include "base/fd.hpp"

namespace kiln::cli {

/// A fresh directory ".kiln-restore-XXXXXX" in a directory that exists, locked while this object lives. The
/// destructor removes it with its content.
class Staging {
 public:
  /// Removes the staging directories in `parent` that killed restores left, and makes a fresh one. Throws
  /// Error(io).
  explicit Staging(const std::string& parent);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  int fd() const noexcept { return fd_.get(); }
  const std::string& path() const noexcept { return path_; }
  /// Gives the directory the name `root`, unless something has it. Returns whether it did.
  bool become(const std::string& root, unsigned mode);

 private:
  base::Fd fd_;
  std::string path_;  // empty: it became the directory
};

/// Makes a directory and all above it. Throws Error(io).
void make_directories(const std::string& path);

/// rename() that never replaces. False, with `errno` set to EEXIST, when `to` has the name already.
bool rename_if_absent(int from_directory, const char* from, int to_directory, const char* to) noexcept;

}  // namespace kiln::cli

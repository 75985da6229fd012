// A directory in which a restore writes files before they get their names.
#pragma once

#include <string>

#include "base/fd.hpp"

namespace kiln::cli {

/// True for the name of a directory ".kiln-restore-XXXXXX" that a restore made in the open directory `parent`:
/// it has a restore's marker, or nothing in it yet.
bool is_staging(int parent, const std::string& name);

/// A fresh directory "tree" in a fresh ".kiln-restore-XXXXXX" of a directory that exists. The outer one has a
/// marker, too, and is locked while this object lives. The destructor removes both with their content.
class Staging {
 public:
  /// Removes the staging directories in `parent` that killed restores left, and makes a fresh one. Where the
  /// filesystem has no locks, the left ones stay. Throws Error(io).
  explicit Staging(const std::string& parent);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// The descriptor of "tree".
  int fd() const noexcept { return fd_.get(); }
  const std::string& path() const noexcept { return path_; }
  /// Gives "tree" the name `root`, unless something has it. Returns whether it did.
  bool become(const std::string& root, unsigned mode);

 private:
  /// False when another process removed the directory before it was locked.
  bool make(const std::string& parent);

  base::Fd lock_, fd_;
  std::string outer_, path_;
};

/// Makes a directory and all above it. Throws Error(io).
void make_directories(const std::string& path);

/// rename() that never replaces. False, with `errno` set to EEXIST, when `to` has the name already.
bool rename_if_absent(int from_directory, const char* from, int to_directory, const char* to) noexcept;

}  // namespace kiln::cli

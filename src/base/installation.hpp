// Where an installed kiln keeps the files that it needs at run time.
#pragma once

#include <string>
#include <vector>

namespace kiln::base {

/// One file or directory of an installation.
struct Installed {
  std::string below;       ///< its path below kiln's prefix: "libexec/kiln/kiln-worker"
  std::string configured;  ///< its absolute path below the prefix that this build was configured with
  std::string beside;      ///< its name when it may lie beside the library or the program; empty: it may not
};

/// Paths where the file may lie, in the order of the search and without repeats:
///   1. the directory of the library or program that contains this code, and the two directories above it
///   2. the directory of the running program, and the two directories above it
///   3. the prefix that the program was built with (kiln_install_prefix in kiln.h)
///   4. the path that this build was configured with
std::vector<std::string> candidates_of(const Installed& installed);

}  // namespace kiln::base

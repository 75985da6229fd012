// Writes the files of a captured directory.
#pragma once

#include <string>
#include <vector>

#include "runtime/blob/blob_space.hpp"
#include "tools/kiln/caches/tree/listing.hpp"

namespace kiln::cli {

struct RestoreRequest {
  std::string root;        ///< absolute; made when it is not there
  bool immutable = false;  ///< files with the same bytes may be hard links of each other
  bool copy = false;       ///< neither hard links nor clones
  bool force = false;      ///< replaces files that differ
  bool full = false;       ///< compares bytes also where size and time are equal
};

struct Restored {
  std::string missing;  ///< not empty: nothing was written, because of this
  std::uint64_t written = 0, equal = 0, kept = 0;
  std::vector<std::string> warnings;
};

/// Fetches every file that is not there yet, and only then gives the files their names. A directory that does
/// not exist gets its name with all its files at once; in one that exists, each file appears whole. A killed
/// restore leaves a staging directory, which the next one removes. Throws Error(io) when the directory cannot
/// be written, and Error(invalid_argument) when a symlink or a file is where a directory has to be.
Restored restore(const RestoreRequest& request, const Tree& tree, runtime::BlobSpace& files);

}  // namespace kiln::cli

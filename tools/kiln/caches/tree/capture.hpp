// Stores the files of a directory as blobs.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "runtime/blob/blob_space.hpp"
#include "tools/kiln/caches/tree/listing.hpp"
#include "tools/kiln/caches/tree/walk.hpp"

namespace kiln::cli {

struct CaptureRequest {
  std::string root;
  FileChoice choice;
  const Tree* last = nullptr;  ///< the record before; null: none
  bool full = false;           ///< reads also files with the size and time of `last`, and the blobs of all
};

struct Captured {
  Tree tree;
  std::uint64_t read = 0;  ///< files whose bytes were read
  std::uint64_t stored = 0, stored_bytes = 0;
  std::uint64_t skipped = 0;  ///< files left out
  std::vector<std::string> warnings;
};

/// Stores the files whose bytes no store has, and returns the list of all. A blob that is listed counts as
/// there; with `full` it is read, and stored again when it is damaged. A file that changes while it is
/// read is read again, and left out when it goes on changing. Throws Error(io) when the directory cannot be
/// read or a file cannot be stored.
Captured capture(const CaptureRequest& request, runtime::BlobSpace& files);

}  // namespace kiln::cli

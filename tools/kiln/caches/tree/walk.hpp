// The files of a directory that a capture takes, without their bytes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/kiln/caches/tree/listing.hpp"

namespace kiln::cli {

struct FileChoice {
  std::vector<std::string> include, exclude;  ///< patterns as in profile/glob.hpp; no `include`: all files
};

/// The entries below the open directory `root`, sorted by path; files have no digest yet. Symlinks are not
/// followed, and staging directories of restores are not in it. `left_out` gets a sentence for each entry that a list cannot have: sockets, symlinks that leave
/// the directory, directories that cannot be read.
std::vector<TreeEntry> walk(int root, const FileChoice& choice,
                            const std::function<void(std::string)>& left_out);

}  // namespace kiln::cli

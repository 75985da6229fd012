// The files of a directory that a capture takes, without their bytes.
#pragma once

#include <sys/types.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tools/kiln/caches/tree/listing.hpp"

namespace kiln::cli {

/// A directory by its device and inode, so that no symlink or mount hides it.
using DirectoryId = std::pair<dev_t, ino_t>;

struct FileChoice {
  std::vector<std::string> include, exclude;  ///< patterns as in profile/glob.hpp; no `include`: all files
  std::set<DirectoryId> stores{};             ///< kiln's own directories, which are left out
};

/// The entries below the open directory `root`, sorted by path; files have no digest yet. Symlinks are not
/// followed, and staging directories of restores are not in it. `left_out` gets a sentence for each entry that a
/// list cannot have: sockets, symlinks that leave the directory, directories that cannot be read, paths that are too
/// long, stores of kiln.
std::vector<TreeEntry> walk(int root, const FileChoice& choice,
                            const std::function<void(std::string)>& left_out);

}  // namespace kiln::cli

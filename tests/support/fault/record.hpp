// The log of a recorded run: entries of a fixed head and `payload` bytes, in the order of the calls' ends.
#pragma once

#include <cstdint>

namespace kiln::fault {

enum class Kind : std::uint32_t {
  write,           // offset, payload: the bytes written; flag: one of the three below
  truncate,        // offset: the new length
  sync,            // of a file; of a directory: flag
  sync_failed,     // reported an error
  make_directory,  // payload: path
  create,          // payload: path; inode: the new file
  rename,          // payload: from '\0' to
  link,            // payload: from '\0' to
  unlink,          // payload: path
  mark,            // offset: the caller's number
};

inline constexpr std::uint32_t kPlain = 0, kSynced = 1, kSyncedAndFailed = 2;  // O_DSYNC

struct Entry {
  Kind kind;
  std::uint32_t flag;
  std::uint64_t inode, offset, payload;
};

}  // namespace kiln::fault

// The log of a recorded run. An entry is a fixed head and `payload` bytes;
// entries are in the order in which calls ended.
#pragma once

#include <cstdint>

namespace kiln::fault {

enum class Kind : std::uint32_t {
  write,           // offset, payload: the bytes written; flag: one of the three constants below
  truncate,        // offset: the new length
  sync,            // flag: 1 for a directory, 0 for a file
  sync_failed,     // the sync reported an error; flag: as for sync
  make_directory,  // payload: path
  create,          // payload: path; inode: the new file
  rename,          // payload: old path, '\0', new path
  link,            // payload: old path, '\0', new path
  unlink,          // payload: path
  mark,            // offset: the caller's number
};

inline constexpr std::uint32_t kPlain = 0, kSynced = 1, kSyncedAndFailed = 2;  // kPlain: without O_DSYNC

struct Entry {
  Kind kind;
  std::uint32_t flag;
  std::uint64_t inode, offset, payload;
};

}  // namespace kiln::fault

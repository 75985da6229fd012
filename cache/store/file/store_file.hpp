// One store's data file: its paths, the pools of descriptors that pass its gate, and how readers enter the
// gate.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/deadline.hpp"
#include "cache/lock/fd_pool.hpp"
#include "cache/lock/gate.hpp"
#include "cache/store/file/pages.hpp"

namespace kiln::cache {

/// The file's paths and pools of descriptors for it. Thread-safe.
struct StoreFile {
  StoreFile(const std::string& dir, bool may_write);
  const std::string directory, place, path;  ///< DIR, DIR/v1, DIR/v1/data.mdb
  const std::string recent_path;             ///< DIR/v1/recent (cache/store/recent_uses.hpp)
  const bool writable;
  FdPool readers, writers, recent;  ///< keep no idle descriptor until the upkeep's thread runs
};

enum class FileState {
  current,
  replaced,  ///< the path leads to another file by now (after gc or clear)
  foreign    ///< not a regular file of this user or root, or others may write it
};
/// Compares the descriptor's file with the file at `path`. The images in a store end up on the GPU, so the
/// file itself is checked, even though the directory was checked when it was chosen.
FileState state_of(int fd, const std::string& path) noexcept;
inline constexpr const char* kForeignFile =
    "not a regular file that belongs to this user or root, and that nobody else may write";

/// How entering the gate ended.
enum class Entered { yes, absent, gate_timeout, failed };

/// A reader inside the gate: until it is destroyed no page of its snapshot is reused.
class Reading {
 public:
  /// Enters the gate as a reader. `why` receives what people should know when that failed. Throws Damaged
  /// when the file has no valid meta page, Error(io) when the filesystem has no locks.
  static Entered enter(StoreFile& file, base::Deadline deadline, std::optional<Reading>& out,
                       std::string& why);
  const PageFile& pages() const noexcept { return pages_; }

 private:
  Reading(FdPool::Lease fd, RangeLock lock, const Snapshot& snapshot)
      : fd_(std::move(fd)), lock_(std::move(lock)), pages_(fd_.get(), snapshot) {}
  FdPool::Lease fd_;  // declared first: the lock goes before the descriptor returns to its pool
  RangeLock lock_;
  PageFile pages_;
};

/// Runs `body` on the file's pages inside the gate, unless the gate could not be entered; `why` says why.
/// Throws what Reading::enter and `body` throw.
Entered read_pages(StoreFile& file, base::Deadline deadline, std::string& why,
                   const std::function<void(const PageFile&)>& body);
/// Works as read_pages, but throws Error(io) when the gate could not be entered. A `body` that throws Damaged
/// runs once more, since a meta page may have been read while a writer of another process wrote it. REQUIRES:
/// `body` begins by forgetting what an earlier run found.
void read_pages_or_throw(StoreFile& file, base::Deadline deadline,
                         const std::function<void(const PageFile&)>& body);

}  // namespace kiln::cache

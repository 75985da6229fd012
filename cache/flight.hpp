// The flight lock: one asker per key on this host. It only saves work; correctness never depends on it.
//
// A zero-length file in /dev/shm named by uid and store identity, never mapped, never unlinked by us: one
// byte per key (62 bits of it), OFD, polled. A killed holder frees it at once (the kernel does).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/deadline.hpp"
#include "cache/gate.hpp"
#include "kiln/digest.hpp"

namespace kiln::cache {

class Flight;

/// The lock file of one store. Thread-safe.
class FlightFile {
 public:
  /// Opens or creates `directory`/kiln-<uid>-<store identity>.flight (0600). A file or symlink that is not a
  /// regular file of ours is refused. Throws Error(io); without a flight file everybody compiles for himself.
  FlightFile(const std::string& directory, const std::string& store_identity);
  ~FlightFile();

  struct Taken {
    std::unique_ptr<Flight> flight;  ///< null when the deadline passed first
    bool waited = false;             ///< somebody else held it: look in the store again
  };
  /// After locking, the file's inode is compared with the path's, and the lock is taken again when it was
  /// replaced. A waiter logs after 2 s. Throws Error(io) when the lock file has become unusable.
  Taken take(const Key& key, base::Deadline deadline);
  const std::string& path() const noexcept { return path_; }

 private:
  friend class Flight;
  std::string path_;
  std::unique_ptr<FdPool> pool_;
};

/// Held by who compiles a key, until the record is committed.
class Flight {
 public:
  Flight(FdPool::Lease fd, RangeLock lock) : fd_(std::move(fd)), lock_(std::move(lock)) {}

 private:
  FdPool::Lease fd_;  // declared first: the lock goes before the descriptor returns to the pool
  RangeLock lock_;
};

}  // namespace kiln::cache

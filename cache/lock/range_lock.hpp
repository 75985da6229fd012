// A lock on one byte of a file that belongs to an open file description (OFD), and a query for the bytes
// that others have locked.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/deadline.hpp"
#include "base/process.hpp"

namespace kiln::cache {

/// An OFD lock on one byte of a leased descriptor's file, released on destruction. It is polled for, since
/// OFD waits cannot be bounded.
class RangeLock {
 public:
  enum class Mode { shared, exclusive };
  RangeLock() = default;
  RangeLock(RangeLock&& other) noexcept;
  RangeLock& operator=(RangeLock&& other) noexcept;
  ~RangeLock() { release(); }
  /// Returns nothing when the deadline passed first. Throws Error(io) when the filesystem has no
  /// such locks (EINVAL, ENOLCK).
  static std::optional<RangeLock> acquire(int fd, std::int64_t offset, Mode mode, base::Deadline deadline);
  void release() noexcept;
  /// Returns whether a lock of another open file description excludes a lock of this mode.
  static bool excluded(int fd, std::int64_t offset, Mode mode) noexcept;

 private:
  RangeLock(int fd, std::int64_t offset)
      : fd_(fd), offset_(offset), generation_(base::process_generation()) {}
  int fd_ = -1;
  std::int64_t offset_ = 0;
  std::uint64_t generation_ = 0;
};

/// The offsets in [begin, end) that other open file descriptions have locked, in ascending order.
std::vector<std::int64_t> locks_held(int fd, std::int64_t begin, std::int64_t end);

}  // namespace kiln::cache

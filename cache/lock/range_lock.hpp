// A lock on one byte of a file, by an open file description (OFD), and a look at which bytes others have
// locked.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/deadline.hpp"
#include "base/process.hpp"

namespace kiln::cache {

/// An OFD lock on a byte range of a leased descriptor, released on destruction. Polled (OFD waits cannot be
/// bounded).
class RangeLock {
 public:
  enum class Mode { shared, exclusive };
  RangeLock() = default;
  RangeLock(RangeLock&& other) noexcept;
  RangeLock& operator=(RangeLock&& other) noexcept;
  ~RangeLock() { release(); }
  /// Nothing when the deadline passed first. Throws Error(io) when the filesystem has no such locks (EINVAL,
  /// ENOLCK).
  static std::optional<RangeLock> acquire(int fd, std::int64_t offset, Mode mode, base::Deadline deadline);
  void release() noexcept;
  /// Whether another open file description holds what excludes a lock of this mode.
  static bool excluded(int fd, std::int64_t offset, Mode mode) noexcept;

 private:
  RangeLock(int fd, std::int64_t offset)
      : fd_(fd), offset_(offset), generation_(base::process_generation()) {}
  int fd_ = -1;
  std::int64_t offset_ = 0;
  std::uint64_t generation_ = 0;
};

/// Where locks are held within [begin, end) of a file by other open file descriptions, in order.
std::vector<std::int64_t> locks_held(int fd, std::int64_t begin, std::int64_t end);

}  // namespace kiln::cache

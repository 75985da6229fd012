// The gate: who may read and who may write one LMDB file that is opened MDB_NOLOCK.
//
// Open-file-description locks on three bytes far behind the end of data.mdb itself, so that lock and data
// cannot be separated: turnstile T, readers R, writer W.
//   read   wait while T is held, shared R; read and copy out; drop R
//   write  exclusive W for the whole transaction and its sync; T then R exclusive only for the instant of
//   mdb_txn_begin
// Readers look at T and never lock it: where many cores read all the time some reader would always hold it,
// and no writer would ever get it.
// Why that is enough: with MDB_NOLOCK a writer reuses pages freed before the previous transaction, so the
// only reader it can hurt is one older than its begin; those are drained there. OFD locks belong to the open
// file description: every operation uses a descriptor of its own, never one that another thread is using.
// Every wait has a deadline.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/fd.hpp"
#include "base/process.hpp"

namespace kiln::cache {

/// Descriptors of one file, each used by one operation at a time. Thread-safe.
class FdPool {
 public:
  enum class Keep { idle, none_yet };
  /// Keeps a few descriptors open that nobody uses, for the next operation; `none_yet`: from keep_idle() on.
  FdPool(std::string path, int open_flags, Keep keep = Keep::idle)
      : path_(std::move(path)), flags_(open_flags), keep_(keep) {}
  class Lease;  ///< must not outlive the pool
  /// An invalid lease when the file cannot be opened (errno says why).
  Lease lease();
  /// For `none_yet`; in this process, not in a forked child. A descriptor of a replaced file keeps its space:
  /// whoever calls this also calls drop_idle() from time to time.
  void keep_idle() noexcept;
  /// Closes those that nobody uses.
  void drop_idle() noexcept;

 private:
  friend class Lease;
  struct Idle {
    std::mutex mutex;
    std::vector<base::Fd> fds;
    bool keep = false;
    ~Idle();
  };
  void take_back(base::Fd fd) noexcept;
  static constexpr std::size_t kIdleLimit = 64;
  std::string path_;
  int flags_;
  Keep keep_;
  base::PerProcess<Idle> idle_;
};

class FdPool::Lease {
 public:
  Lease() = default;
  Lease(FdPool* pool, base::Fd fd)
      : pool_(pool), fd_(std::move(fd)), generation_(base::process_generation()) {}
  Lease(Lease&&) = default;
  Lease& operator=(Lease&&) = default;
  ~Lease();
  int get() const noexcept { return fd_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
  /// Closes it instead of giving it back: it is of a file that the path no longer names.
  void discard() noexcept;

 private:
  FdPool* pool_ = nullptr;
  base::Fd fd_;
  std::uint64_t generation_ = 0;
};

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

inline constexpr std::int64_t kGateOffset = std::int64_t{1} << 62;  ///< T, R, W at +0, +1, +2

/// A reader's right to have a transaction open. Holds R shared.
std::optional<RangeLock> enter_reader(int fd, base::Deadline deadline);

/// A writer's right: W exclusive until destruction; `drained()` brackets mdb_txn_begin.
class WriterPass {
 public:
  static std::optional<WriterPass> enter(int fd, base::Deadline deadline);
  /// Holds T and R exclusive; release it right after mdb_txn_begin. A writer holds T at most 20 ms in 100:
  /// between attempts it lets new readers in.
  struct Drained {
    RangeLock turnstile, readers;
  };
  std::optional<Drained> drain(base::Deadline deadline);

 private:
  WriterPass(int fd, RangeLock writer) : fd_(fd), writer_(std::move(writer)) {}
  int fd_;
  RangeLock writer_;
};

}  // namespace kiln::cache

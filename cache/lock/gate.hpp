// The gate decides who may read and who may write an LMDB file that is opened MDB_NOLOCK.
//
// It consists of open-file-description locks on three bytes far beyond the end of data.mdb itself, so that
// lock and data cannot be separated: turnstile T, readers R, writer W.
// - A reader waits while T is held, and locks R shared. It reads and copies out, then it unlocks R.
// - A writer holds W exclusive for the whole transaction and its sync. It holds T and then R exclusive only
//   for the instant of mdb_txn_begin.
//
// Readers look at T and never lock it. Where many cores read all the time, some reader would always hold it,
// and no writer would ever get it.
//
// With MDB_NOLOCK a writer reuses pages freed before the previous transaction, so the only reader it can hurt
// is one older than its begin. Such readers are drained there, and that is why the gate is enough. OFD locks
// belong to the open file description: every operation uses a descriptor of its own, never one that another
// thread is using. Every wait has a deadline.
#pragma once

#include <cstdint>
#include <optional>

#include "base/deadline.hpp"
#include "cache/lock/range_lock.hpp"

namespace kiln::cache {

inline constexpr std::int64_t kGateOffset = std::int64_t{1} << 62;  ///< T, R, W at +0, +1, +2

/// Lets a reader in: the returned lock holds R shared. Returns nothing when the deadline passed first.
std::optional<RangeLock> enter_reader(int fd, base::Deadline deadline);

/// A writer inside the gate. It holds W exclusive until destruction.
class WriterPass {
 public:
  /// Returns nothing when the deadline passed first.
  static std::optional<WriterPass> enter(int fd, base::Deadline deadline);
  /// Holds T and R exclusive; release it right after mdb_txn_begin.
  struct Drained {
    RangeLock turnstile, readers;
  };
  /// Waits until no reader is inside. Holds T at most 20 ms in 100: between attempts it lets new readers in.
  /// Returns nothing when the deadline passed first.
  std::optional<Drained> drain(base::Deadline deadline);

 private:
  WriterPass(int fd, RangeLock writer) : fd_(fd), writer_(std::move(writer)) {}
  int fd_;
  RangeLock writer_;
};

}  // namespace kiln::cache

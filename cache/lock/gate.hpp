// The gate decides who may read and who may write an LMDB file that is opened MDB_NOLOCK.
//
// It consists of open-file-description locks on three bytes far behind the end of data.mdb itself, so that
// lock and data cannot be separated: turnstile T, readers R, writer W.
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
#include <optional>

#include "base/deadline.hpp"
#include "cache/lock/range_lock.hpp"

namespace kiln::cache {

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

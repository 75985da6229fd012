// The waiters of a store are processes that have been waiting for a while. They are shown to people (`kiln
// top`) and are never needed for correctness. A process that does not wait pays nothing for them.
//
// They lie after the slots of a board's file (cache/flight/board.hpp): 256 cells of 4 KiB
// (cache/lock/cell_file.hpp) with the magic "KWAI". The body of a cell (base/wire.hpp):
//
//     32 bytes key, u32 for, i32 pid, u64 pid namespace, i64 started (unix ms), i64 started (boot clock, ms),
//     bytes host, bytes subject.
//
// A waiter holds the first byte of its cell (OFD lock, exclusive), so that the kernel frees the cell of a
// killed waiter at once. The content of a cell that is not locked is no information.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cache/flight/board.hpp"
#include "cache/lock/range_lock.hpp"

namespace kiln::cache {

enum class WaitFor : std::uint32_t {
  flight,  ///< another process's compile of the same key
  turn,    ///< a slot of the host, memory, or its own process's other compiles
  remote   ///< another node's compile
};

struct Waiter : ProcessIdentity {
  Key key;  ///< the key that is compiled; zero for a turn
  WaitFor wait_for = WaitFor::flight;
  std::int64_t started_unix_ms = 0;  ///< for people
  std::int64_t started_ms = 0;       ///< boot clock
  std::string subject;               ///< "rms_norm T=bf16 H=4096 for sm_90a"; may be empty

  double seconds_since_start() const noexcept;
};

/// A waiter that is shown until destruction. The copy in a forked child does nothing.
class ShownWaiter {
 public:
  ~ShownWaiter();
  ShownWaiter(const ShownWaiter&) = delete;
  ShownWaiter& operator=(const ShownWaiter&) = delete;

 private:
  friend class Waiters;
  ShownWaiter(CellFile& file, FdPool::Lease fd, RangeLock lock, std::int64_t at);
  CellFile& file_;
  const std::uint64_t generation_;
  FdPool::Lease fd_;  // declared before its lock, which is destroyed first
  RangeLock lock_;
  const std::int64_t at_;
};

/// The waiters of one board file. Thread-safe; safe between processes.
class Waiters {
 public:
  /// `board` must outlive this object and all ShownWaiters.
  explicit Waiters(Board& board) : file_(board.file()) {}
  /// Shows that this process has waited since `since_ms` (boot clock). Returns null when that is not
  /// possible: no file, or too many waiters.
  std::unique_ptr<ShownWaiter> show(WaitFor wait_for, const Key& key, std::string_view subject,
                                    std::int64_t since_ms) noexcept;
  /// The processes that wait now, the longest wait first.
  std::vector<Waiter> read_all() noexcept;

 private:
  CellFile& file_;
};

}  // namespace kiln::cache

// The waiters of a store: processes that have been waiting for a while, and for what. They are shown to
// people
// (`kiln top`) and are never needed for correctness. A process that does not wait pays nothing for them.
//
// Behind the slots of a board's file (cache/flight/board.hpp): 256 cells of 4 KiB (cache/lock/cell_file.hpp)
// with "KWAI" as the magic and as the body
//   32 bytes key, u32 for, i32 pid, u64 pid namespace, i64 started (unix ms), i64 started (boot clock, ms),
//   bytes host, bytes subject
// A waiter holds the first byte of its cell (OFD lock, exclusive), so that the kernel frees the cell of a
// killed one at once. The content of a cell that nobody holds is no information.
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

struct Waiter : Asker {
  Key key;  ///< of a flight or of another node's; zero for a turn
  WaitFor wait_for = WaitFor::flight;
  std::int64_t started_unix_ms = 0;  ///< for people
  std::int64_t started_ms = 0;       ///< boot clock
  std::string subject;               ///< "rms_norm T=bf16 H=4096 for sm_90a"; may be empty

  double seconds_since_start() const noexcept;
};

/// Shown until destruction. A forked child's copy does nothing.
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
  FdPool::Lease fd_;  // before its lock, which goes first
  RangeLock lock_;
  const std::int64_t at_;
};

/// Those of one board file. Thread-safe; safe between processes.
class Waiters {
 public:
  /// `board` outlives it and who is shown.
  explicit Waiters(Board& board) : file_(board.file()) {}
  /// That this process has waited since `since_ms` (boot clock). Null when it cannot be shown: no file, too
  /// many wait.
  std::unique_ptr<ShownWaiter> show(WaitFor wait_for, const Key& key, std::string_view subject,
                                    std::int64_t since_ms) noexcept;
  /// Those who wait now, the longest first.
  std::vector<Waiter> read_all() noexcept;

 private:
  CellFile& file_;
};

}  // namespace kiln::cache

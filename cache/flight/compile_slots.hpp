// The host's compile slots bound how many compiles run at once, over all processes that share a flight file.
//
// A slot is one byte of the flight file, after the bytes of the keys, and is held exclusively (OFD) while a
// compile runs. A killed holder gives it back at once. Nobody waits for a slot while holding one; a flight
// lock may be held. A process that may use N slots takes the highest free one, so that one with a smaller
// quota finds its low ones free. Callers who wait for their kernel go before work ahead of need: they have
// express slots of their own behind the N, and while one of them waits it holds a mark (shared), at which the
// others stand back.
#pragma once

#include <memory>

#include "cache/flight/flight.hpp"

namespace kiln::cache {

enum class SlotUse { caller, ahead };

/// Held until destruction. A forked child's copy does nothing.
class Slot {
 public:
  Slot(std::shared_ptr<FlightFile> file, FdPool::Lease fd, RangeLock lock)
      : file_(std::move(file)), fd_(std::move(fd)), lock_(std::move(lock)) {}

 private:
  std::shared_ptr<FlightFile> file_;  // first: its pool goes last
  FdPool::Lease fd_;                  // before its lock, which goes first
  RangeLock lock_;
};

/// One asker. Used by one thread at a time; its mark goes with it. Keeps the flight file alive.
class SlotAsker {
 public:
  /// `count` slots, at least 1, and a quarter as many express ones.
  SlotAsker(std::shared_ptr<FlightFile> file, SlotUse use, int count);
  ~SlotAsker();
  /// Null: none is free now. Throws Error(io) when there is no usable file any more.
  std::shared_ptr<Slot> try_take();

 private:
  std::shared_ptr<FlightFile> file_;
  const SlotUse use_;
  const int count_;
  FdPool::Lease mark_fd_;
  RangeLock mark_;
};

}  // namespace kiln::cache

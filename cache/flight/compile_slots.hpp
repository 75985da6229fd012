// The host's compile slots bound how many compiles run at once, over all processes that share a flight file.
//
// A slot is one byte of the flight file, after the bytes of the keys. Its holder keeps an exclusive OFD lock
// on it while a compile runs; the kernel frees the slot of a killed holder at once. A compile never waits for
// a slot while it holds another, but it may hold a flight lock. A process that may use N slots takes the
// highest free one, so that a process with a smaller quota finds its low slots free.
//
// Callers that wait for their kernel go before work ahead of need. They have express slots of their own after
// the N. While a caller waits for a slot it holds a mark (shared), and work ahead of need takes no slot.
#pragma once

#include <memory>

#include "cache/flight/flight.hpp"

namespace kiln::cache {

enum class SlotUse { caller, ahead };

/// A slot that is held until destruction. The copy in a forked child does nothing.
class Slot {
 public:
  Slot(std::shared_ptr<FlightFile> file, FdPool::Lease fd, RangeLock lock)
      : file_(std::move(file)), fd_(std::move(fd)), lock_(std::move(lock)) {}

 private:
  std::shared_ptr<FlightFile> file_;  // declared first: its pool is destroyed last
  FdPool::Lease fd_;                  // declared before its lock, which is destroyed first
  RangeLock lock_;
};

/// One compile's request for a slot. Used by one thread at a time. Keeps the flight file alive, and drops its
/// mark on destruction.
class SlotRequest {
 public:
  /// `count` is the number of slots, at least 1. Callers may use a quarter as many express slots
  /// (at least 1), too.
  SlotRequest(std::shared_ptr<FlightFile> file, SlotUse use, int count);
  ~SlotRequest();
  /// Returns null when no slot may be taken now. Throws Error(io) when no lock file is usable any more.
  std::shared_ptr<Slot> try_take();

 private:
  std::shared_ptr<FlightFile> file_;
  const SlotUse use_;
  const int count_;
  FdPool::Lease mark_fd_;
  RangeLock mark_;
};

}  // namespace kiln::cache

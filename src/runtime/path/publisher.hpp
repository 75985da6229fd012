// Step 6 of the path, off the caller's way: one thread puts what was compiled into the store, in order. The
// flight lock travels with the record and is held until the commit.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/deadline.hpp"
#include "base/process.hpp"
#include "cache/flight/flight.hpp"
#include "cache/store/store.hpp"
#include "runtime/state/counters.hpp"
#include "runtime/state/events.hpp"

namespace kiln::runtime {

/// A record on its way into the store.
struct Publication {
  using Afterwards = std::function<void(cache::Record&&)>;
  cache::Record record;
  std::string subject;                      ///< for people
  std::shared_ptr<cache::Store> store;      ///< not null
  std::shared_ptr<cache::Flight> flight;    ///< null: compiled without the host's lock
  std::shared_ptr<LastingEvents> events{};  ///< told of evictions; null: nobody is told
  /// Called with the record after its put, whether or not the put landed. Takes the record on to the fleet's
  /// tier. Runs on the publisher's thread, or on the caller's where the record is not queued. Must not throw.
  /// It is dropped uncalled when memory is short.
  Afterwards afterwards{};
  /// Called with the result of the put in place of counting it among the kernels. Must not throw.
  std::function<void(const cache::PutResult&)> counted{};
  cache::Existing existing = cache::Existing::kept;
  base::Clock::time_point handed_over = base::Clock::now();
};

/// The handling of a record when the queue is full.
enum class WhenFull {
  skip,  ///< it is not stored; counted, and warned once
  wait   ///< the caller waits for room: for commands, whose purpose is the record
};

/// Thread-safe. Its thread starts with the first record. A forked child has an empty queue of its own.
class Publisher {
 public:
  struct Limits {
    std::size_t entries = 64, bytes = std::size_t{256} << 20;  ///< including the one being put
    std::chrono::milliseconds patience{1800};                  ///< longest wait of the destructor
  };
  explicit Publisher(std::shared_ptr<Counters> counters) : Publisher(std::move(counters), Limits()) {}
  Publisher(std::shared_ptr<Counters> counters, Limits limits);
  /// Waits for the queue, but no longer than `limits.patience`. Records that are left then are still put if
  /// the process lives long enough, by a thread that needs nothing of this object.
  ~Publisher();
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  void hand_over(Publication publication, WhenFull when_full) noexcept;
  /// Waits until everything handed over so far is committed or skipped. False when the deadline passed first.
  bool flush(base::Deadline deadline = base::Deadline::never());

 private:
  struct Queue;
  struct Shared {
    std::shared_ptr<Queue> queue;
    Shared();
  };
  const std::shared_ptr<Counters> counters_;
  const Limits limits_;
  base::PerProcess<Shared> shared_;
};

}  // namespace kiln::runtime

// The queue of what a node sends to the fleet: compiled entries and missed rows. One thread writes them in
// order; entries are dropped when the thread does not keep up.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "base/process.hpp"
#include "cache/fleet/tier.hpp"

namespace kiln::fleet {

/// Thread-safe. Held by a shared_ptr, which its thread shares. Entries that are still queued when the tier
/// is destroyed are written all the same, if the process lives long enough. A forked child has an empty
/// queue and no thread.
class PushQueue : public std::enable_shared_from_this<PushQueue> {
 public:
  explicit PushQueue(std::shared_ptr<const TierContext> context) : context_(std::move(context)) {}

  /// These work as the Tier's functions of the same names.
  bool publish(PublishedRecord entry, Tier::About about, std::shared_ptr<HeldLease> lease,
               Tier::Full full) noexcept;
  void report_missing(std::string row) noexcept;
  bool flush(base::Deadline deadline) noexcept;
  Tier::Totals totals();
  /// Waits until the queued entries are written, then for the thread.
  void leave(base::Deadline deadline) noexcept;

 private:
  struct Push {
    PublishedRecord entry;
    Tier::About about;
    std::shared_ptr<HeldLease> lease;
    std::size_t bytes = 0;
  };
  /// The state of one process.
  struct Own {
    std::mutex mutex;  // guards what follows
    std::condition_variable work, progress;
    std::deque<Push> waiting;
    std::size_t entries = 0, bytes = 0;          // with the one being written
    std::uint64_t handed_over = 0, settled = 0;  // in order: one thread
    std::set<std::string> reported;              // each row once in a process
    std::deque<std::string> rows;                // the reported ones that no server has yet
    std::size_t rows_untried = 0;                // at the end of `rows`
    base::Clock::time_point again{};             // when the tried ones are tried again
    Outcome last;                                // of the last entry that was not written
    bool closing = false, running = false;
    std::thread thread;
  };
  bool hand_over(Push push, Tier::Full full) noexcept;
  /// Starts the thread unless it runs. Throws when that fails. REQUIRES: the mutex is held.
  void start(Own& own);
  void run(Own& own) noexcept;
  void write(Push& push) noexcept;
  /// REQUIRES: the mutex is held. It is released meanwhile, and taken again.
  void write_rows(Own& own, std::unique_lock<std::mutex>& lock) noexcept;

  const std::shared_ptr<const TierContext> context_;
  base::PerProcess<Own> own_;
};

}  // namespace kiln::fleet

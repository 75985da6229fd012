// The queue of what a node sends to the fleet: compiled entries and missed rows. One thread writes them in
// order; entries are dropped when it does not keep up.
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

/// Thread-safe. Held by a shared_ptr, which its thread shares: what is still to be written when the tier goes
/// is written all the same, if the process lives long enough. A forked child has an empty queue and no
/// thread.
class PushQueue : public std::enable_shared_from_this<PushQueue> {
 public:
  explicit PushQueue(std::shared_ptr<const TierContext> context) : context_(std::move(context)) {}

  /// As the Tier's functions of the same names.
  bool publish(PublishedRecord entry, Tier::About about, std::shared_ptr<HeldLease> lease,
               Tier::Full full) noexcept;
  void report_missing(std::string row) noexcept;
  bool flush(base::Deadline deadline) noexcept;
  Tier::Totals totals();
  /// Waits for what is to be written, then for the thread.
  void leave(base::Deadline deadline) noexcept;

 private:
  struct Push {
    PublishedRecord entry;
    Tier::About about;
    std::shared_ptr<HeldLease> lease;
    std::size_t bytes = 0;
  };
  /// Of one process.
  struct Own {
    std::mutex mutex;  // guards what follows
    std::condition_variable work, progress;
    std::deque<Push> waiting;
    std::size_t entries = 0, bytes = 0;          // with the one being written
    std::uint64_t handed_over = 0, settled = 0;  // in order: one thread
    std::set<std::string> reported;              // each row once in a process
    std::deque<std::string> rows;                // of these, what the server has not got yet
    std::size_t rows_untried = 0;                // at its end
    base::Clock::time_point again{};             // when the others are tried again
    Outcome last;                                // of what was not written
    bool closing = false, running = false;
    std::thread thread;
  };
  bool hand_over(Push push, Tier::Full full) noexcept;
  /// REQUIRES: the mutex. Throws when there is no thread to be had.
  void start(Own& own);
  void run(Own& own) noexcept;
  void write(Push& push) noexcept;
  /// REQUIRES: the mutex, which is left and taken again.
  void write_rows(Own& own, std::unique_lock<std::mutex>& lock) noexcept;

  const std::shared_ptr<const TierContext> context_;
  base::PerProcess<Own> own_;
};

}  // namespace kiln::fleet

// Adds a service's counters to the counters of its store, which outlive processes. `kiln stats` shows them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/deadline.hpp"
#include "base/process.hpp"
#include "cache/store/tally.hpp"
#include "runtime/state/counters.hpp"

namespace kiln::runtime {

struct LifetimeCounter {
  const char* group;  ///< "hits"; "" for a counter that stands alone
  const char* name;   ///< "disk"
  Counters::Count Counters::*count;
};
/// All of Counters but device_bytes. An index is a place in the store's tally, so the list is append-only.
std::span<const LifetimeCounter> lifetime_counters() noexcept;

/// Adds to the store what the counters gained since the last save. Thread-safe. A forked child adds nothing:
/// counts that its parent has not saved yet would count twice.
class Lifetime {
 public:
  explicit Lifetime(const Counters& counters) : counters_(counters) {}
  Lifetime(const Lifetime&) = delete;
  Lifetime& operator=(const Lifetime&) = delete;
  ~Lifetime() { save(); }
  /// Counts in the store in `directory` from now on.
  void count_in(const std::string& directory);
  /// Sets a function that returns a store's directory, or nothing. It is called when there are counts to save
  /// and no store was opened, because layers served everything.
  void ask_where(std::function<std::string()> where) { where_ = std::move(where); }
  void save() noexcept;
  /// Saves at most once a minute. Other calls cost the reading of a clock.
  void save_sometimes() noexcept;

 private:
  const Counters& counters_;
  bool ours() const noexcept { return generation_ == base::process_generation(); }
  const std::uint64_t generation_ = base::process_generation();
  std::atomic<base::Clock::time_point> due_{base::Clock::now() + kPeriod};
  std::mutex mutex_;  // guards what follows; only a process that is ours() locks it
  std::function<std::string()> where_;
  std::unique_ptr<cache::Tally> tally_;
  std::array<std::uint64_t, cache::kTallyValues> saved_{};

  static constexpr auto kPeriod = std::chrono::minutes(1);
};

}  // namespace kiln::runtime

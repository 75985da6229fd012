// A service's counters added to those of its store, which outlive processes: what `kiln stats` shows.
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
  const char* group;  ///< "hits"; "" for those that stand alone
  const char* name;   ///< "disk"
  Counters::Count Counters::*count;
};
/// All of Counters but device_bytes. The index is the place in the store's tally: append-only.
std::span<const LifetimeCounter> lifetime_counters() noexcept;

/// Adds what the counters gained since the last time. Thread-safe. A forked child adds nothing: what its
/// parent has not saved yet would count twice.
class Lifetime {
 public:
  explicit Lifetime(const Counters& counters) : counters_(counters) {}
  Lifetime(const Lifetime&) = delete;
  Lifetime& operator=(const Lifetime&) = delete;
  ~Lifetime() { save(); }
  /// `directory` is the store's.
  void count_in(const std::string& directory);
  /// Who never opens a store, as layers serve it, is asked where to count when there is something to save: a
  /// store's directory, or nothing.
  void ask_where(std::function<std::string()> where) { where_ = std::move(where); }
  void save() noexcept;
  /// At most once a minute; otherwise the cost of reading a clock.
  void save_sometimes() noexcept;

 private:
  const Counters& counters_;
  bool ours() const noexcept { return generation_ == base::process_generation(); }
  const std::uint64_t generation_ = base::process_generation();
  std::atomic<base::Clock::time_point> due_{base::Clock::now() + kPeriod};
  std::mutex mutex_;  // guards what follows; touched by `ours` only
  std::function<std::string()> where_;
  std::unique_ptr<cache::Tally> tally_;
  std::array<std::uint64_t, cache::kTallyValues> saved_{};

  static constexpr auto kPeriod = std::chrono::minutes(1);
};

}  // namespace kiln::runtime

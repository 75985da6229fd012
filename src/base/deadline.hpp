// A point in time that bounds a wait, and the polling loop that kiln's waits for locks share.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace kiln::base {

using Clock = std::chrono::steady_clock;

class Deadline {
 public:
  static Deadline never() noexcept { return Deadline(Clock::time_point::max()); }
  static Deadline after(Clock::duration d) noexcept {
    const auto now = Clock::now();
    return d >= Clock::time_point::max() - now ? never() : Deadline(now + d);
  }
  bool passed() const noexcept { return at_ != Clock::time_point::max() && Clock::now() >= at_; }
  Clock::time_point at() const noexcept { return at_; }
  /// Zero once the deadline has passed.
  Clock::duration left() const noexcept {
    return at_ == Clock::time_point::max() ? Clock::duration::max()
                                           : std::max(Clock::duration::zero(), at_ - Clock::now());
  }
  friend Deadline earlier(Deadline a, Deadline b) noexcept { return a.at_ < b.at_ ? a : b; }

 private:
  explicit Deadline(Clock::time_point at) noexcept : at_(at) {}
  Clock::time_point at_;
};

/// Calls `attempt` until it returns true or the deadline has passed. The pause between two calls is 50 us at
/// first and doubles up to 1 ms. Returns what the last call returned.
template <class Attempt>
bool poll_until(Deadline deadline, Attempt&& attempt) {
  auto pause = std::chrono::microseconds(50);
  while (!attempt()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, deadline.left()));
    pause = std::min(pause * 2, std::chrono::microseconds(1000));
  }
  return true;
}

}  // namespace kiln::base

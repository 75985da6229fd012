// The breaker leaves a server alone for a while after it failed several times in a row.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/deadline.hpp"

namespace kiln::fleet {

struct BreakerPolicy {
  int failures = 3;  ///< failures in a row that open the breaker
  base::Clock::duration pause = std::chrono::seconds(30);
  double jitter = 0.2;  ///< of the pause, up and down, so that a fleet does not come back at once
};

/// Closed: every request may go. Open: none may, until the pause is over. Then one request is let through as
/// a probe, and its result decides. Not thread-safe; the owner gives the time.
class Breaker {
 public:
  enum class State : std::uint8_t { closed, open, probing };
  using Time = base::Clock::time_point;

  /// `seed` should differ from process to process.
  Breaker(BreakerPolicy policy, std::uint64_t seed) noexcept : policy_(policy), random_(seed) {}

  /// Returns whether a request may go. A request that is let through reports its result by exactly one of
  /// the three calls below.
  bool allow(Time now) noexcept;
  void succeeded() noexcept;
  void failed(Time now) noexcept;
  /// Neither success nor failure: the server was not really asked.
  void abandoned() noexcept;

  State state() const noexcept { return state_; }
  /// The time at which an open breaker lets a request through.
  Time opens_until() const noexcept { return until_; }
  std::uint64_t times_opened() const noexcept { return opened_; }

 private:
  void open(Time now) noexcept;

  BreakerPolicy policy_;
  State state_ = State::closed;
  int failures_ = 0;
  Time until_{};
  std::uint64_t opened_ = 0, random_;
};

constexpr const char* name_of(Breaker::State state) noexcept {
  return state == Breaker::State::closed ? "closed" : state == Breaker::State::open ? "open" : "probing";
}

}  // namespace kiln::fleet

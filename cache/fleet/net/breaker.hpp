// The breaker leaves a server alone for a while after it failed several times in a row.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/deadline.hpp"

namespace kiln::fleet {

struct BreakerPolicy {
  int failures = 3;  ///< in a row, which open it
  base::Clock::duration pause = std::chrono::seconds(30);
  double jitter = 0.2;  ///< of the pause, up and down, so that a fleet does not come back at once
};

/// Closed: everybody may ask. Open: nobody until the pause is over. Then one asker is let through, and its
/// fortune decides. Not thread-safe; the owner gives the time.
class Breaker {
 public:
  enum class State : std::uint8_t { closed, open, probing };
  using Time = base::Clock::time_point;

  /// `seed` should differ from process to process.
  Breaker(BreakerPolicy policy, std::uint64_t seed) noexcept : policy_(policy), random_(seed) {}

  /// Who is let through reports how it went by exactly one of the three calls below.
  bool allow(Time now) noexcept;
  void succeeded() noexcept;
  void failed(Time now) noexcept;
  /// Neither: the server was not really asked.
  void abandoned() noexcept;

  State state() const noexcept { return state_; }
  /// When an open one lets somebody through.
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

#include "cache/fleet/net/breaker.hpp"

namespace kiln::fleet {

bool Breaker::allow(Time now) noexcept {
  if (state_ == State::closed) return true;
  if (state_ == State::probing || now < until_) return false;
  state_ = State::probing;
  return true;
}

void Breaker::succeeded() noexcept {
  // The request may have been let through before the breaker opened: the server answers all the same.
  state_ = State::closed;
  failures_ = 0;
}

void Breaker::failed(Time now) noexcept {
  if (state_ == State::open) return;  // several were under way when it opened
  if (state_ == State::probing || ++failures_ >= policy_.failures) open(now);
}

void Breaker::abandoned() noexcept {
  if (state_ == State::probing) state_ = State::open;  // the next request is the probe
}

void Breaker::open(Time now) noexcept {
  random_ += 0x9e3779b97f4a7c15u;  // splitmix64
  std::uint64_t z = random_;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  const double fraction = static_cast<double>((z ^ z >> 31) >> 11) * 0x1p-53;
  const double factor = 1 + policy_.jitter * (2 * fraction - 1);
  until_ = now + std::chrono::duration_cast<base::Clock::duration>(policy_.pause * factor);
  state_ = State::open;
  failures_ = 0;
  ++opened_;
}

}  // namespace kiln::fleet

#include "cache/lock/gate.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kTurnstile = kGateOffset, kReaders = kGateOffset + 1, kWriter = kGateOffset + 2;
constexpr auto kTurnstileHeld = 20ms, kTurnstilePeriod = 100ms;

}  // namespace

std::optional<RangeLock> enter_reader(int fd, base::Deadline deadline) {
  // A writer that was stopped while it held T does not stop readers: T is only for fairness, and R protects.
  base::poll_until(earlier(deadline, base::Deadline::after(kTurnstilePeriod)),
                   [fd] { return !RangeLock::excluded(fd, kTurnstile, RangeLock::Mode::shared); });
  return RangeLock::acquire(fd, kReaders, RangeLock::Mode::shared, deadline);
}

std::optional<WriterPass> WriterPass::enter(int fd, base::Deadline deadline) {
  auto writer = RangeLock::acquire(fd, kWriter, RangeLock::Mode::exclusive, deadline);
  if (!writer) return std::nullopt;
  return WriterPass(fd, std::move(*writer));
}

std::optional<WriterPass::Drained> WriterPass::drain(base::Deadline deadline) {
  for (;;) {
    auto turnstile = RangeLock::acquire(fd_, kTurnstile, RangeLock::Mode::exclusive, deadline);
    if (!turnstile) return std::nullopt;
    const auto since = base::Clock::now();
    const auto attempt = earlier(deadline, base::Deadline::after(kTurnstileHeld));
    auto readers = RangeLock::acquire(fd_, kReaders, RangeLock::Mode::exclusive, attempt);
    if (readers) return Drained{std::move(*turnstile), std::move(*readers)};
    turnstile->release();
    if (deadline.passed()) return std::nullopt;
    const auto pause = since + kTurnstilePeriod - base::Clock::now();
    std::this_thread::sleep_for(std::min<base::Clock::duration>(pause, deadline.left()));
  }
}

}  // namespace kiln::cache

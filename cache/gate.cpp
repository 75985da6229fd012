#include "cache/gate.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kTurnstile = kGateOffset, kReaders = kGateOffset + 1, kWriter = kGateOffset + 2;
constexpr auto kTurnstileHeld = 20ms, kTurnstilePeriod = 100ms;

struct flock one_byte(std::int64_t offset, short type) {
  struct flock range {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = offset;
  range.l_len = 1;
  return range;
}

/// False when another open file description holds a conflicting lock.
bool set_lock(int fd, std::int64_t offset, short type) {
  struct flock range = one_byte(offset, type);
  while (::fcntl(fd, F_OFD_SETLK, &range) != 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EACCES) return false;
    const int error = errno;
    const bool unsupported = error == EINVAL || error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS;
    throw Error(Errc::io,
                std::string("file lock: ") + std::strerror(error) +
                    (unsupported ? "; this filesystem has no open-file-description locks: use a directory "
                                   "on a local one"
                                 : ""));
  }
  return true;
}

}  // namespace

RangeLock::RangeLock(RangeLock&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), offset_(other.offset_), generation_(other.generation_) {}

RangeLock& RangeLock::operator=(RangeLock&& other) noexcept {
  if (this != &other) {
    release();
    fd_ = std::exchange(other.fd_, -1);
    offset_ = other.offset_;
    generation_ = other.generation_;
  }
  return *this;
}

std::optional<RangeLock> RangeLock::acquire(int fd, std::int64_t offset, Mode mode, base::Deadline deadline) {
  const short type = mode == Mode::shared ? F_RDLCK : F_WRLCK;
  if (!base::poll_until(deadline, [&] { return set_lock(fd, offset, type); })) return std::nullopt;
  return RangeLock(fd, offset);
}

bool RangeLock::excluded(int fd, std::int64_t offset, Mode mode) noexcept {
  struct flock range = one_byte(offset, mode == Mode::shared ? F_RDLCK : F_WRLCK);
  return ::fcntl(fd, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

void RangeLock::release() noexcept {
  const int fd = std::exchange(fd_, -1);
  // A forked child shares the open file description: its unlock would free the parent's lock.
  if (fd < 0 || generation_ != base::process_generation()) return;
  try {
    set_lock(fd, offset_, F_UNLCK);
  } catch (...) {  // unlocking what is locked cannot fail; the descriptor's close would unlock it too
  }
}

std::optional<RangeLock> enter_reader(int fd, base::Deadline deadline) {
  // A writer that was stopped while it held T does not stop readers: T is only fair, R is what protects.
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

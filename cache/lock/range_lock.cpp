#include "cache/lock/range_lock.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

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

/// The range is searched piece by piece, because the kernel names any lock that is in the way, not the first.
void find_locks(int fd, std::int64_t begin, std::int64_t end, std::vector<std::int64_t>& out) {
  while (begin < end) {
    struct flock range {};
    range.l_type = F_WRLCK, range.l_whence = SEEK_SET, range.l_start = begin, range.l_len = end - begin;
    if (::fcntl(fd, F_OFD_GETLK, &range) != 0 || range.l_type == F_UNLCK) return;
    const std::int64_t first = std::max<std::int64_t>(range.l_start, begin);
    find_locks(fd, begin, first, out);
    out.push_back(first);
    if (range.l_len == 0) return;
    begin = range.l_start + range.l_len;
  }
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
  } catch (...) {  // unlocking a held lock cannot fail; closing the descriptor would unlock it, too
  }
}

std::vector<std::int64_t> locks_held(int fd, std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> out;
  find_locks(fd, begin, end, out);
  return out;
}

}  // namespace kiln::cache

#include "cache/lock/fd_pool.hpp"

#include <fcntl.h>

namespace kiln::cache {
namespace {

void close_ours(base::Fd fd) noexcept {
  base::forget_at_fork(fd.get());  // first: once closed, the number may be another thread's
}

}  // namespace

FdPool::Idle::~Idle() {
  for (base::Fd& fd : fds) close_ours(std::move(fd));
}

FdPool::Lease FdPool::lease() {
  {
    Idle& idle = idle_.get();
    const std::lock_guard lock(idle.mutex);
    if (!idle.fds.empty()) {
      base::Fd fd = std::move(idle.fds.back());
      idle.fds.pop_back();
      return Lease(this, std::move(fd));
    }
  }
  base::Fd fd(::open(path_.c_str(), flags_ | O_CLOEXEC, 0600));
  if (fd) base::close_at_fork(fd.get());
  return Lease(this, std::move(fd));
}

void FdPool::keep_idle() noexcept {
  Idle& idle = idle_.get();
  const std::lock_guard lock(idle.mutex);
  idle.keep = true;
}

void FdPool::drop_idle() noexcept {
  Idle& idle = idle_.get();
  std::vector<base::Fd> dropped;
  {
    const std::lock_guard lock(idle.mutex);
    dropped.swap(idle.fds);
  }
  for (base::Fd& fd : dropped) close_ours(std::move(fd));
}

void FdPool::take_back(base::Fd fd) noexcept {
  try {
    Idle& idle = idle_.get();
    const std::lock_guard lock(idle.mutex);
    if ((keep_ == Keep::idle || idle.keep) && idle.fds.size() < kIdleLimit) {
      idle.fds.push_back(std::move(fd));
      return;
    }
  } catch (...) {  // no memory to keep it
  }
  close_ours(std::move(fd));
}

FdPool::Lease::~Lease() {
  if (!fd_) return;
  if (generation_ != base::process_generation())
    fd_.release();  // the parent's: it was closed at the fork, and its number may be in other use
  else
    pool_->take_back(std::move(fd_));
}

void FdPool::Lease::discard() noexcept {
  if (!fd_) return;
  if (generation_ != base::process_generation())
    fd_.release();
  else
    close_ours(std::move(fd_));
}

}  // namespace kiln::cache

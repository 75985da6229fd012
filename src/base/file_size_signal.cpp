#include "base/file_size_signal.hpp"

#include <cerrno>
#include <ctime>

namespace kiln::base {
namespace {

sigset_t only_file_size() noexcept {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGXFSZ);
  return set;
}

}  // namespace

NoFileSizeSignal::NoFileSizeSignal() noexcept {
  sigset_t pending;
  if (::sigpending(&pending) == 0) was_pending_ = ::sigismember(&pending, SIGXFSZ) == 1;
  const sigset_t set = only_file_size();
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
}

NoFileSizeSignal::~NoFileSizeSignal() {
  const int error = errno;
  if (!was_pending_ && ::sigismember(&before_, SIGXFSZ) == 0) {
    const sigset_t set = only_file_size();
    const timespec now{};
    while (::sigtimedwait(&set, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

}  // namespace kiln::base

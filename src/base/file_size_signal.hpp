// SIGXFSZ kills a process that writes behind RLIMIT_FSIZE. Whoever writes files of a cache wants EFBIG
// instead, and may not touch the host's signal handlers.
#pragma once

#include <csignal>

namespace kiln::base {

/// While it lives, this thread's writes behind the limit fail with EFBIG. Belongs to the thread that made it.
class NoFileSizeSignal {
 public:
  NoFileSizeSignal() noexcept;
  NoFileSizeSignal(const NoFileSizeSignal&) = delete;
  NoFileSizeSignal& operator=(const NoFileSizeSignal&) = delete;
  ~NoFileSizeSignal();

 private:
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace kiln::base

// SIGXFSZ kills a process that writes past RLIMIT_FSIZE. Code that writes cache files wants the error EFBIG
// instead, and must leave the host program's signal handlers alone.
#pragma once

#include <csignal>

namespace kiln::base {

/// While an object lives, writes of its thread past the limit fail with EFBIG. The thread that
/// made it must destroy it.
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

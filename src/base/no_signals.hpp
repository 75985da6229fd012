// Threads of ours in somebody else's process take none of its signals.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace kiln::base {

/// While it lives, the calling thread and those it starts block every signal but those of its own faults:
/// the engine's signals are handled on the engine's threads, and a write past the file-size limit fails with
/// EFBIG instead of ending the process.
class NoSignals {
 public:
  NoSignals() noexcept {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&all, fault);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace kiln::base

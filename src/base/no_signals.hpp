// Keeps the signals of an embedding program away from kiln's threads.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace kiln::base {

/// While an object lives, the calling thread and the threads that it starts block every signal, except
/// SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT. The engine's signals are thus handled on the engine's
/// threads. A write past the file-size limit fails with EFBIG instead of ending the process.
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

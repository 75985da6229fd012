// A forked child that answers with its exit status, and that cannot hang a test.
#pragma once

#include <execinfo.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace kiln::testing {

/// Null, or why a sanitizer build cannot fork while other threads are at work.
/// gcc 12's address sanitizer leaves its allocator locked in the child. The thread sanitizer has no threads
/// in a child of a process with many threads.
inline const char* cannot_fork_busy() noexcept {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return "this sanitizer cannot fork while other threads are at work";
#else
  return nullptr;
#endif
}

/// Far more than any machine needs: a child that this alarm ends was stuck.
constexpr unsigned kStuckSeconds = 60;

/// A child's copy of the test's stderr, which its body may redirect.
inline int g_stuck_child_writes_to = STDERR_FILENO;

/// Writes the stack of the stuck thread, and ends the child as the signal does without a handler. `addr2line`
/// turns the offsets into lines. The second alarm ends a child that hangs here, too.
inline void show_stuck_stack(int) {
  ::alarm(5);
  void* frames[64];
  ::backtrace_symbols_fd(frames, ::backtrace(frames, 64), g_stuck_child_writes_to);
  ::raise(SIGALRM);
}

inline void arm_stuck_alarm() noexcept {
  g_stuck_child_writes_to = ::dup(STDERR_FILENO);
  struct sigaction action {};
  action.sa_handler = show_stuck_stack;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_NODEFER;
  ::sigaction(SIGALRM, &action, nullptr);
  ::alarm(kStuckSeconds);
}

/// Runs `body` in a forked child. Returns its result, or 128 + the
/// signal that ended the child (SIGALRM: stuck).
template <class Body>
int in_child(Body&& body) {
  void* frame;
  ::backtrace(&frame, 1);  // loads what the child's handler must not load
  const pid_t pid = ::fork();
  if (pid == 0) {
    arm_stuck_alarm();
    int status = 99;
    try {
      status = body();
    } catch (...) {
    }
    ::_exit(status);
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace kiln::testing

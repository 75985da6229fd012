// A forked child that answers with its exit status, and that cannot hang a test.
#pragma once

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

/// Runs `body` in a forked child. Returns its result, or 128 + the
/// signal that ended the child (SIGALRM: stuck).
template <class Body>
int in_child(Body&& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(kStuckSeconds);
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

// Counts the system calls that a piece of code makes.
#pragma once

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <limits>
#include <optional>

namespace kiln::testing {

/// The number of system calls of `body`, without the calls that ask for memory. `body` runs in
/// a forked child that this process traces.
/// Nothing where no process may be traced. INT_MAX when `body` throws
/// or dies, so that it exceeds every limit.
template <class Body>
std::optional<int> system_calls_of(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) ::_exit(1);
    ::raise(SIGSTOP);
    ::syscall(SYS_getppid);  // only calls between two getppid calls are counted
    try {
      body();
      ::syscall(SYS_getppid);
    } catch (...) {
    }
    ::_exit(0);
  }
  int status = 0, calls = 0, marks = 0;
  if (::waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return std::nullopt;
  ::ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  while (::ptrace(PTRACE_SYSCALL, child, 0, 0) == 0 && ::waitpid(child, &status, 0) == child &&
         WIFSTOPPED(status)) {
    __ptrace_syscall_info info{};
    if (WSTOPSIG(status) != (SIGTRAP | 0x80) ||
        ::ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info) <= 0 ||
        info.op != PTRACE_SYSCALL_INFO_ENTRY)
      continue;
    switch (info.entry.nr) {
      case SYS_getppid:
        ++marks;
        break;
      case SYS_brk:
      case SYS_mmap:
      case SYS_munmap:
      case SYS_madvise:
        break;
      default:
        calls += marks == 1;
    }
  }
  return marks == 2 ? calls : std::numeric_limits<int>::max();
}

}  // namespace kiln::testing

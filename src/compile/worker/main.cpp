#include "compile/worker/main.hpp"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/fd.hpp"
#include "base/wire.hpp"
#include "compile/backend/backend.hpp"
#include "compile/worker/leftovers.hpp"
#include "compile/worker/protocol.hpp"

namespace kiln::compile {
namespace {

/// Ends the worker after the host was killed: no other process removes the directory that the
/// host made for the worker.
[[noreturn]] void leave() {
  if (const char* directory = std::getenv("TMPDIR"); directory && std::strstr(directory, "/kiln-worker-")) {
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
    std::filesystem::remove_all(directory, ignored);  // files that a running compile made meanwhile
  }
  ::_exit(0);
}

/// Closes the host's descriptors that this process inherited: with a glibc before 2.34 the host cannot do it.
void close_inherited() {
  constexpr unsigned first = kWorkerSocket + 1;
  if (::syscall(SYS_close_range, first, ~0U, 0) == 0) return;
  std::vector<int> open;  // an older kernel; the directory's own descriptor is closed before these
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc/self/fd", error), end; !error && at != end;
       at.increment(error))
    open.push_back(std::atoi(at->path().filename().c_str()));
  for (const int fd : open)
    if (fd >= static_cast<int>(first)) ::close(fd);
}

void leave_with_host(int host_pid) {
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, host_pid, 0));
  if (fd < 0) {
    if (errno == ESRCH) leave();
    return;  // no pidfd in this kernel or sandbox: only end of file on the socket is left
  }
  try {
    std::thread([fd] {
      pollfd poll_fd{fd, POLLIN, 0};
      while (::poll(&poll_fd, 1, -1) < 0 && errno == EINTR) {
      }
      leave();
    }).detach();
  } catch (const std::system_error&) {  // at a limit of threads: end of file on the socket is left
    ::close(fd);
  }
}

/// A compile allocates and frees tens of megabytes. Keeping them saves asking the kernel for zeroed pages
/// again (7 to 15 % of a compile's CPU time).
void keep_memory() {
  ::mallopt(M_ARENA_MAX, 1);
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
  ::mallopt(M_TOP_PAD, 16 << 20);
}

/// Limits address space once, and CPU time for each compile.
class Limits {
 public:
  Limits(rlim_t address_space, rlim_t cpu_seconds) : cpu_seconds_(cpu_seconds) {
    lower(RLIMIT_CORE, 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // sanitizers reserve terabytes
    if (address_space) lower(RLIMIT_AS, address_space);
#else
    static_cast<void>(address_space);
#endif
    // When memory runs out, the kernel should kill this process first: the host tries again.
    if (const base::Fd score(::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC)); score)
      static_cast<void>(!::write(score.get(), "1000", 4));
  }
  /// Sets a limit for the case that the host is stopped. Otherwise the host kills at the deadline.
  void before_compile() const {
    rusage used{};
    if (cpu_seconds_ == 0 || ::getrusage(RUSAGE_SELF, &used) != 0) return;
    const auto spent = static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec);
    lower(RLIMIT_CPU, spent + 1 + cpu_seconds_);
  }

 private:
  /// Sets the soft limit, as far as the host's own limits allow.
  static void lower(__rlimit_resource what, rlim_t to) {
    rlimit limit{};
    if (::getrlimit(what, &limit) != 0) return;
    limit.rlim_cur = std::min(to, limit.rlim_max);
    ::setrlimit(what, &limit);
  }
  rlim_t cpu_seconds_;
};

}  // namespace

int worker_main(int argc, char** argv) {
  const int host_pid = argc == 6 ? std::atoi(argv[1]) : 0;
  if (host_pid <= 0) {
    std::fputs("kiln-worker is started by kiln: it compiles for a host process over a socket\n", stderr);
    return kNotStartedByHost;
  }
  close_inherited();
  keep_memory();
  const Limits limits(std::strtoull(argv[2], nullptr, 10), std::strtoull(argv[3], nullptr, 10));
  if (const char* directory = std::getenv("TMPDIR")) hold_directory(directory);
  leave_with_host(host_pid);
  if (*argv[4]) {
    try {
      backend().open({argv[4], argv[5]});
    } catch (const std::exception&) {  // the answer to the first request says it again, and better
    }
  }
  std::string bytes;
  while (receive_frame(kWorkerSocket, bytes, base::Deadline::never()) == Transfer::ok) {
    WorkerResponse response;
    try {
      limits.before_compile();
      response = backend().run(decode_request(bytes), WorkingDirectory::of_process);
    } catch (const base::Malformed& error) {
      response.message = std::string("malformed request: ") + error.what();
    }
    if (send_frame(kWorkerSocket, encode(response), base::Deadline::never()) != Transfer::ok) break;
    if (backend().refuses_trace(response)) break;  // the next compile in this process would crash
  }
  leave();  // the socket of a killed host may close before its pidfd reports the end
}

}  // namespace kiln::compile

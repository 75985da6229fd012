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
#include <thread>

#include "base/fd.hpp"
#include "base/wire.hpp"
#include "compile/backend/backend.hpp"
#include "compile/worker/leftovers.hpp"
#include "compile/worker/protocol.hpp"

namespace kiln::compile {
namespace {

/// The host was killed: nobody else removes the directory that it made for us.
[[noreturn]] void leave() {
  if (const char* directory = std::getenv("TMPDIR"); directory && std::strstr(directory, "/kiln-worker-")) {
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
    std::filesystem::remove_all(directory, ignored);  // what a compile in flight made meanwhile
  }
  ::_exit(0);
}

void leave_with_host(int host_pid) {
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, host_pid, 0));
  if (fd < 0) {
    if (errno == ESRCH) leave();
    return;  // a kernel or sandbox without pidfd: end of file on the socket is what is left
  }
  std::thread([fd] {
    pollfd poll_fd{fd, POLLIN, 0};
    while (::poll(&poll_fd, 1, -1) < 0 && errno == EINTR) {
    }
    leave();
  }).detach();
}

/// A compile allocates and frees tens of megabytes: keep them from one compile to the next instead of asking
/// the kernel for zeroed pages again (7 to 15 % of a compile's CPU time).
void keep_memory() {
  ::mallopt(M_ARENA_MAX, 1);
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
  ::mallopt(M_TOP_PAD, 16 << 20);
}

/// Address space for good, CPU time for each compile anew.
class Limits {
 public:
  Limits(rlim_t address_space, rlim_t cpu_seconds) : cpu_seconds_(cpu_seconds) {
    lower(RLIMIT_CORE, 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they reserve terabytes
    if (address_space) lower(RLIMIT_AS, address_space);
#else
    static_cast<void>(address_space);
#endif
    // Of all there is, the kernel shall kill this one first when memory runs out: the host asks again.
    if (const base::Fd score(::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC)); score)
      static_cast<void>(!::write(score.get(), "1000", 4));
  }
  /// A backstop: the host kills at the deadline, unless it was stopped itself.
  void before_compile() const {
    rusage used{};
    if (cpu_seconds_ == 0 || ::getrusage(RUSAGE_SELF, &used) != 0) return;
    const auto spent = static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec);
    lower(RLIMIT_CPU, spent + 1 + cpu_seconds_);
  }

 private:
  /// The soft limit; what the host's own limits forbid is left.
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
  keep_memory();
  const Limits limits(std::strtoull(argv[2], nullptr, 10), std::strtoull(argv[3], nullptr, 10));
  if (const char* directory = std::getenv("TMPDIR")) hold_directory(directory);
  leave_with_host(host_pid);
  if (*argv[4]) {
    try {
      backend().open({argv[4], argv[5]});
    } catch (const std::exception&) {  // said again, and better, in the answer to the first request
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
  leave();  // the socket of a killed host may close before its pidfd tells
}

}  // namespace kiln::compile

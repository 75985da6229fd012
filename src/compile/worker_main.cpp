#include "compile/worker_main.hpp"

#include <malloc.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "base/wire.hpp"
#include "compile/nvrtc_program.hpp"

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

}  // namespace

int worker_main(int host_pid) {
  keep_memory();
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  leave_with_host(host_pid);
  std::string bytes;
  while (receive_frame(kWorkerSocket, bytes, base::Deadline::never()) == Receive::ok) {
    WorkerResponse response;
    try {
      response = run_nvrtc(decode_request(bytes), WorkingDirectory::of_process);
    } catch (const base::Malformed& error) {
      response.message = std::string("malformed request: ") + error.what();
    }
    if (!send_frame(kWorkerSocket, encode(response))) break;
  }
  leave();  // the socket of a killed host may close before its pidfd tells
}

}  // namespace kiln::compile

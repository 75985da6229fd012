#include "compile/worker_main.hpp"

#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>

#include "base/wire.hpp"
#include "compile/nvrtc_program.hpp"

namespace kiln::compile {
namespace {

void leave_with_host(int host_pid) {
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, host_pid, 0));
  if (fd < 0) {
    if (errno == ESRCH) ::_exit(0);
    return;  // a kernel or sandbox without pidfd: end of file on the socket is what is left
  }
  std::thread([fd] {
    pollfd poll_fd{fd, POLLIN, 0};
    while (::poll(&poll_fd, 1, -1) < 0 && errno == EINTR) {
    }
    ::_exit(0);
  }).detach();
}

}  // namespace

int worker_main(int host_pid) {
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
  return 0;
}

}  // namespace kiln::compile

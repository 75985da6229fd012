#include "compile/worker_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/file.hpp"
#include "compile/worker_main.hpp"
#include "kiln/error.hpp"

extern char** environ;

namespace kiln::compile {
namespace {

/// What a compiler needs from its host's environment; the rest (LD_PRELOAD of a profiler, CUDA_*, ...) is not
/// its business.
std::vector<std::string> worker_environment(const std::string& directory) {
  std::vector<std::string> out{"LC_ALL=C", "TMPDIR=" + directory};
  for (const char* name : {"PATH", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"}) {
    if (const char* value = std::getenv(name)) out.push_back(std::string(name) + '=' + value);
  }
  return out;
}

struct SpawnPlan {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  SpawnPlan() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
};

}  // namespace

std::unique_ptr<WorkerProcess> WorkerProcess::spawn(const std::string& executable) {
  const auto fail = [&](const char* what, int error) {
    throw Error(Errc::no_compiler, "cannot start the compile worker '" + executable + "': " + what + ": " +
                                       std::strerror(error));
  };
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) fail("socketpair", errno);
  base::Fd host_end(pair[0]), worker_end(pair[1]);

  SpawnPlan plan;
  // dup2 onto itself would keep close-on-exec: the socket must not happen to be the target number already.
  if (worker_end.get() == kWorkerSocket)
    worker_end = base::Fd(::fcntl(worker_end.get(), F_DUPFD_CLOEXEC, kWorkerSocket + 1));
  posix_spawn_file_actions_addopen(&plan.actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&plan.actions, 2, 1);
  posix_spawn_file_actions_adddup2(&plan.actions, worker_end.get(), kWorkerSocket);
  posix_spawn_file_actions_addclosefrom_np(&plan.actions, kWorkerSocket + 1);
  sigset_t all, none;
  ::sigfillset(&all);
  ::sigemptyset(&none);
  posix_spawnattr_setsigdefault(&plan.attributes, &all);
  posix_spawnattr_setsigmask(&plan.attributes, &none);
  posix_spawnattr_setpgroup(&plan.attributes, 0);
  posix_spawnattr_setflags(&plan.attributes,
                           POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);

  auto directory = std::make_unique<base::TempDir>("kiln-worker-");
  std::vector<std::string> environment = worker_environment(directory->path());
  std::vector<char*> env_pointers;
  for (std::string& entry : environment) env_pointers.push_back(entry.data());
  env_pointers.push_back(nullptr);
  std::string name = "kiln-worker", host = std::to_string(::getpid());
  char* arguments[] = {name.data(), host.data(), nullptr};
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, executable.c_str(), &plan.actions, &plan.attributes, arguments,
                                  env_pointers.data());
  if (error != 0) fail("posix_spawn", error);
  return std::unique_ptr<WorkerProcess>(new WorkerProcess(pid, std::move(host_end), std::move(directory)));
}

std::string WorkerProcess::reap(bool kill_first) noexcept {
  if (pid_ <= 0) return {};
  if (kill_first) ::kill(pid_, SIGKILL);
  int status = 0;
  pid_t got;
  do got = ::waitpid(pid_, &status, 0);
  while (got < 0 && errno == EINTR);
  pid_ = -1;
  if (got < 0) return "reaped by the host program";  // a host that ignores SIGCHLD
  if (WIFSIGNALED(status)) {
    return "killed by signal " + std::to_string(WTERMSIG(status)) + " (" + ::strsignal(WTERMSIG(status)) +
           ")";
  }
  return "exited with status " + std::to_string(WEXITSTATUS(status));
}

WorkerProcess::~WorkerProcess() {
  if (::getpid() == host_)
    reap(true);
  else
    static_cast<void>(directory_.release());  // the parent's, like the worker
}

bool WorkerProcess::alive() const noexcept {
  pollfd poll_fd{socket_.get(), POLLIN, 0};
  return ::poll(&poll_fd, 1, 0) == 0;
}

WorkerProcess::Answer WorkerProcess::ask(const WorkerRequest& request, base::Deadline deadline) {
  Answer answer;
  std::string bytes;
  Receive received = Receive::closed;
  if (send_frame(socket_.get(), encode(request))) received = receive_frame(socket_.get(), bytes, deadline);
  if (received == Receive::ok) {
    try {
      answer.response = decode_response(bytes);
      answer.fate = Answer::Fate::answered;
      return answer;
    } catch (const std::exception&) {
      received = Receive::malformed;
    }
  }
  answer.fate = received == Receive::deadline ? Answer::Fate::timed_out : Answer::Fate::died;
  // A closed socket means that it is gone or going: wait for its own status; otherwise it must be stopped
  // first.
  answer.how = reap(received != Receive::closed);
  if (received == Receive::malformed) answer.how = "its answer was malformed";
  return answer;
}

std::string find_worker_executable(const std::string& configured) {
  if (!configured.empty()) return configured;
  namespace fs = std::filesystem;
  std::error_code error;
  const std::string own = base::own_object_directory();
  const std::string program = fs::read_symlink("/proc/self/exe", error).parent_path().string();
  for (const std::string& candidate :
       {own + "/kiln-worker", own + "/../libexec/kiln/kiln-worker", own + "/../../libexec/kiln/kiln-worker",
        program + "/kiln-worker", program + "/../libexec/kiln/kiln-worker",
        std::string(KILN_INSTALL_LIBEXECDIR "/kiln/kiln-worker")}) {
    if (::access(candidate.c_str(), X_OK) == 0) return base::normalized(candidate);
  }
  return {};
}

}  // namespace kiln::compile

#include "compile/pool/process.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "base/file.hpp"
#include "base/installation.hpp"
#include "base/process.hpp"
#include "compile/worker/leftovers.hpp"
#include "compile/worker/main.hpp"
#include "kiln/error.hpp"

extern char** environ;

namespace kiln::compile {
namespace {

/// Closes descriptors from `first` on in the child. glibc has the function from 2.34 on. With an older glibc
/// only the worker closes them (worker_main).
void close_from(posix_spawn_file_actions_t& actions, int first) {
  using CloseFrom = int (*)(posix_spawn_file_actions_t*, int);
  const auto function =
      reinterpret_cast<CloseFrom>(::dlsym(RTLD_DEFAULT, "posix_spawn_file_actions_addclosefrom_np"));
  if (function) function(&actions, first);
}

/// The environment variables that a compiler needs. Others do not concern it, such as LD_PRELOAD of
/// a profiler or CUDA_*.
std::vector<std::string> worker_environment(const std::string& directory) {
  std::vector<std::string> out{"LC_ALL=C", "TMPDIR=" + directory};
  for (const char* name : {"PATH", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"}) {
    if (const char* value = std::getenv(name)) out.push_back(std::string(name) + '=' + value);
  }
  return out;
}

struct SpawnSetup {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  SpawnSetup() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
};

/// Time that a worker has to exit after its socket was closed.
constexpr int kLastWordsMs = 1000;
constexpr int kSpawnRetries = 50;  // with 20 ms between two tries

/// The highest resident memory of a process since this object was made, as the kernel counts it.
class PeakMemory {
 public:
  explicit PeakMemory(pid_t pid) : directory_("/proc/" + std::to_string(pid)) {
    const base::Fd reset(::open((directory_ + "/clear_refs").c_str(), O_WRONLY | O_CLOEXEC));
    counts_ = reset && ::write(reset.get(), "5", 1) == 1;
  }
  /// 0 where the kernel does not report it.
  std::uint64_t bytes() const {
    const auto status = counts_ ? base::read_proc(directory_ + "/status") : std::string();
    const auto at = status.find("VmHWM:");
    return at == std::string::npos ? 0 : std::strtoull(status.c_str() + at + 6, nullptr, 10) * 1024;
  }

 private:
  std::string directory_;
  bool counts_;
};

}  // namespace

std::unique_ptr<WorkerProcess> WorkerProcess::spawn(const WorkerSettings& settings) {
  const std::string& executable = settings.executable;
  const auto fail = [&](const char* what, int error) {
    throw Error(Errc::no_compiler, "cannot start the compile worker '" + executable + "': " + what + ": " +
                                       std::strerror(error) + "; KILN_WORKER names another executable");
  };
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) fail("socketpair", errno);
  // A forked child that held the sockets would keep a worker of a dead host waiting, or
  // hide the end of a worker.
  base::ClosedAtFork host_end(pair[0]);
  const base::ClosedAtFork first_end(pair[1]);
  // The worker's end must not be a descriptor that the other actions overwrite. Nor may it already be
  // kWorkerSocket, because dup2 onto itself would keep close-on-exec.
  const base::ClosedAtFork second_end(
      pair[1] <= kWorkerSocket ? ::fcntl(pair[1], F_DUPFD_CLOEXEC, kWorkerSocket + 1) : -1);
  const int worker_end = second_end ? second_end.get() : pair[1];

  SpawnSetup setup;
  posix_spawn_file_actions_addopen(&setup.actions, 0, "/dev/null", O_RDONLY, 0);
  // The worker's output goes to the host's standard error. When descriptor 2 is closed, or is a file with
  // close-on-exec, the host has no standard error, and the output is dropped.
  const int flags = ::fcntl(2, F_GETFD);
  if (flags >= 0 && (flags & FD_CLOEXEC) == 0) {
    posix_spawn_file_actions_adddup2(&setup.actions, 2, 1);
  } else {
    posix_spawn_file_actions_addopen(&setup.actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&setup.actions, 2, "/dev/null", O_WRONLY, 0);
  }
  posix_spawn_file_actions_adddup2(&setup.actions, worker_end, kWorkerSocket);
  close_from(setup.actions, kWorkerSocket + 1);
  sigset_t all, none;
  ::sigfillset(&all);
  ::sigemptyset(&none);
  posix_spawnattr_setsigdefault(&setup.attributes, &all);
  posix_spawnattr_setsigmask(&setup.attributes, &none);
  posix_spawnattr_setpgroup(&setup.attributes, 0);
  posix_spawnattr_setflags(&setup.attributes,
                           POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);

  auto directory = std::make_unique<base::TempDir>(kWorkerDirectory);
  sweep_leftovers(directory->path());
  const auto pointers = [](std::vector<std::string>& texts) {
    std::vector<char*> out;
    for (std::string& text : texts) out.push_back(text.data());
    out.push_back(nullptr);
    return out;
  };
  std::vector<std::string> environment = worker_environment(directory->path());
  std::vector<std::string> arguments{"kiln-worker",
                                     std::to_string(::getpid()),
                                     std::to_string(settings.address_space),
                                     std::to_string(static_cast<std::uint64_t>(settings.cpu_seconds)),
                                     settings.compiler.library,
                                     settings.compiler.builtins};
  pid_t pid = 0;
  const auto start = [&] {
    return ::posix_spawn(&pid, executable.c_str(), &setup.actions, &setup.attributes,
                         pointers(arguments).data(), pointers(environment).data());
  };
  int error = start();
  // At a limit of threads, threads that have just ended still count for a while.
  for (int i = 0; error == EAGAIN && i < kSpawnRetries; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    error = start();
  }
  if (error != 0) fail("posix_spawn", error);
  return std::unique_ptr<WorkerProcess>(new WorkerProcess(pid, host_end.release(), std::move(directory)));
}

WorkerProcess::WorkerProcess(pid_t pid, base::Fd socket, std::unique_ptr<base::TempDir> directory)
    : pid_(pid),
      generation_(base::process_generation()),
      socket_(std::move(socket)),
      pidfd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))),
      directory_(std::move(directory)) {
  if (pidfd_) base::close_at_fork(pidfd_.get());
}

WorkerProcess::~WorkerProcess() {
  if (generation_ != base::process_generation()) {  // everything belongs to the parent
    static_cast<void>(socket_.release());
    static_cast<void>(pidfd_.release());
    static_cast<void>(directory_.release());
    return;
  }
  if (!reaped_) {
    send_kill();
    reap();
  }
  base::forget_at_fork(socket_.get());
  if (pidfd_) base::forget_at_fork(pidfd_.get());
}

void WorkerProcess::send_kill() noexcept {
  // The pidfd is safer than the pid: a host that ignores SIGCHLD reaps by itself, and the pid may then
  // belong to another process.
  const bool there = pidfd_ ? ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0) == 0
                            : ::kill(pid_, SIGKILL) == 0;
  if (there) ::kill(-pid_, SIGKILL);  // its process group, with everything that it started
}

void WorkerProcess::kill(Reason reason) noexcept {
  Reason none = Reason::none;
  reason_.compare_exchange_strong(none, reason);
  send_kill();
}

/// REQUIRES: the worker is dead or dying.
std::string WorkerProcess::reap(int* signal) noexcept {
  siginfo_t info{};
  int got;
  do
    got = pidfd_ ? ::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd_.get()), &info, WEXITED)
                 : ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED);
  while (got < 0 && errno == EINTR);
  reaped_ = true;
  // ECHILD: the host ignores SIGCHLD, or waits for any child.
  if (got < 0) return "reaped by the host program";
  if (info.si_code == CLD_EXITED) {
    return "exited with status " + std::to_string(info.si_status) +
           (info.si_status == kNotStartedByHost ? ": it belongs to another version of kiln" : "");
  }
  if (signal) *signal = info.si_status;
  std::string how =
      "killed by signal " + std::to_string(info.si_status) + " (" + ::strsignal(info.si_status) + ")";
  if (info.si_status == SIGABRT) how += ", as the compiler does when memory runs out";
  if (info.si_status == SIGXCPU) how += ": it reached its limit of CPU time";
  return how;
}

bool WorkerProcess::alive() const noexcept {
  // A descriptor of -1 is ignored.
  pollfd fds[] = {{socket_.get(), POLLIN, 0}, {pidfd_.get(), POLLIN, 0}};
  return reason_ == Reason::none && ::poll(fds, 2, 0) == 0;
}

std::uint64_t WorkerProcess::resident_memory() const noexcept {
  const base::Fd statm(::open(("/proc/" + std::to_string(pid_) + "/statm").c_str(), O_RDONLY | O_CLOEXEC));
  char text[128] = {};
  if (!statm || ::read(statm.get(), text, sizeof text - 1) <= 0) return 0;
  unsigned long long size = 0, resident = 0;
  if (std::sscanf(text, "%llu %llu", &size, &resident) != 2) return 0;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

WorkerProcess::Answer WorkerProcess::ask(const WorkerRequest& request, base::Deadline deadline) {
  using Fate = Answer::Fate;
  Answer answer;
  std::string bytes;
  const PeakMemory peak(pid_);
  const auto start = base::Clock::now();
  Transfer received = send_frame(socket_.get(), encode(request), deadline, pidfd_.get());
  if (received == Transfer::ok) received = receive_frame(socket_.get(), bytes, deadline, pidfd_.get());
  answer.ran = base::Clock::now() - start;
  if (received == Transfer::ok) {
    answer.peak_memory = peak.bytes();
    try {
      answer.response = decode_response(bytes);
      answer.fate = Fate::answered;
      return answer;
    } catch (const std::exception&) {
      received = Transfer::malformed;
    }
  }
  // A closed socket means that the worker has ended or is about to. Its exit status is
  // awaited, but not for ever.
  if (received == Transfer::deadline) kill(Reason::deadline);
  if (received == Transfer::malformed) kill(Reason::malformed);
  if (received == Transfer::closed && pidfd_) {
    pollfd poll_fd{pidfd_.get(), POLLIN, 0};
    if (::poll(&poll_fd, 1, kLastWordsMs) == 0) kill(Reason::left);
  }
  answer.how = reap(&answer.signal);
  const Reason reason = reason_.load();
  answer.killed_by_us = reason != Reason::none;
  switch (reason) {
    case Reason::none:
      answer.fate = Fate::died;
      break;
    case Reason::malformed:
      answer.fate = Fate::died;
      answer.how = "its answer was malformed";
      break;
    case Reason::left:
      answer.fate = Fate::died;
      answer.how = "it closed its socket without an answer and did not end";
      break;
    case Reason::deadline:
      answer.fate = Fate::timed_out;
      break;
    case Reason::memory:
      answer.fate = Fate::out_of_memory;
      break;
    case Reason::cancelled:
      answer.fate = Fate::cancelled;
      break;
  }
  return answer;
}

std::vector<std::string> worker_candidates() {
  return base::candidates_of({.below = "libexec/kiln/kiln-worker",
                              .configured = KILN_INSTALL_LIBEXECDIR "/kiln/kiln-worker",
                              .beside = "kiln-worker"});
}

std::string find_worker_executable(const std::string& configured) {
  if (!configured.empty()) return configured;
  for (std::string& candidate : worker_candidates()) {
    if (::access(candidate.c_str(), X_OK) == 0) return std::move(candidate);
  }
  return {};
}

}  // namespace kiln::compile

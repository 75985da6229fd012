#include "tools/kiln/caches/wrap/run.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "kiln/error.hpp"

extern char** environ;

namespace kiln::cli {
namespace {

constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

constexpr int kOthers[] = {SIGPIPE, SIGXFSZ};  // that kiln handles or ignores

/// The signals that were ignored when the process began. This is before main(), where kiln sets its handlers.
const sigset_t g_ignored = [] {
  sigset_t out;
  ::sigemptyset(&out);
  const auto look_at = [&](int signal) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) ::sigaddset(&out, signal);
  };
  for (const int signal : kForwarded) look_at(signal);
  for (const int signal : kOthers) look_at(signal);
  return out;
}();

bool was_ignored(int signal) noexcept { return ::sigismember(&g_ignored, signal) == 1; }

std::atomic<pid_t> g_child{0};
std::atomic<int> g_early{0};  // a signal that came before the child was there
static_assert(std::atomic<pid_t>::is_always_lock_free, "used in a signal handler");

void forward(int signal, siginfo_t* info, void*) {
  if (info->si_code == SI_KERNEL) return;  // from the terminal, which sends it to the child, too
  const int error = errno;
  if (const pid_t child = g_child)
    ::kill(child, signal);
  else
    g_early = signal;
  errno = error;
}

/// While it lives, signals go to the child. Those that were ignored are ignored, which a child inherits.
class Forwarding {
 public:
  Forwarding() {
    struct sigaction action {
    }, ignored{};
    action.sa_sigaction = &forward;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    ignored.sa_handler = SIG_IGN;
    for (const int signal : kForwarded) set(signal, was_ignored(signal) ? ignored : action);
    for (const int signal : kOthers)
      if (was_ignored(signal)) set(signal, ignored);
  }
  ~Forwarding() {
    for (std::size_t i = 0; i < count_; ++i) ::sigaction(before_[i].signal, &before_[i].action, nullptr);
    g_child = 0;
  }
  Forwarding(const Forwarding&) = delete;
  Forwarding& operator=(const Forwarding&) = delete;

 private:
  struct Before {
    int signal;
    struct sigaction action;
  };

  void set(int signal, const struct sigaction& action) noexcept {
    before_[count_].signal = signal;
    ::sigaction(signal, &action, &before_[count_++].action);
  }

  Before before_[std::size(kForwarded) + std::size(kOthers)] = {};
  std::size_t count_ = 0;
};

/// This process's environment with the variables of the command.
std::vector<std::string> environment_of(const WrappedCommand& command) {
  std::vector<std::string> out;
  for (char** variable = environ; variable && *variable; ++variable) {
    const std::string text = *variable;
    if (!command.variables.contains(text.substr(0, text.find('=')))) out.push_back(text);
  }
  for (const auto& [name, value] : command.variables) out.push_back(name + '=' + value);
  return out;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

/// The child gets the signals as this process got them: kiln ignores some, and handles others.
void use_first_signals(posix_spawnattr_t& attributes) {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : kForwarded)
    if (!was_ignored(signal)) ::sigaddset(&signals, signal);
  for (const int signal : kOthers)
    if (!was_ignored(signal)) ::sigaddset(&signals, signal);
  ::posix_spawnattr_setsigdefault(&attributes, &signals);
  ::sigemptyset(&signals);
  ::posix_spawnattr_setsigmask(&attributes, &signals);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
}

}  // namespace

void keep_ignored_signals() noexcept {
  for (const int signal : kForwarded)
    if (was_ignored(signal)) ::signal(signal, SIG_IGN);
}

int run_wrapped(const WrappedCommand& command) {
  std::vector<std::string> argv = command.argv, environment = environment_of(command);
  const std::vector<char*> arguments = pointers_to(argv), variables = pointers_to(environment);
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_t actions;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_init(&actions);
  use_first_signals(attributes);
  if (command.output_to_stderr) ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  const Forwarding forwarding;
  pid_t child = 0;
  const int failed =
      ::posix_spawnp(&child, arguments[0], &actions, &attributes, arguments.data(), variables.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (failed != 0) throw Error(Errc::io, "cannot start '" + argv[0] + "': " + std::strerror(failed));
  g_child = child;
  if (const int early = g_early.exchange(0)) ::kill(child, early);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace kiln::cli

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

/// While it lives, signals go to the child.
class Forwarding {
 public:
  Forwarding() {
    struct sigaction action {};
    action.sa_sigaction = &forward;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    for (std::size_t i = 0; i < std::size(kForwarded); ++i) ::sigaction(kForwarded[i], &action, &before_[i]);
  }
  ~Forwarding() {
    for (std::size_t i = 0; i < std::size(kForwarded); ++i) ::sigaction(kForwarded[i], &before_[i], nullptr);
    g_child = 0;
  }
  Forwarding(const Forwarding&) = delete;
  Forwarding& operator=(const Forwarding&) = delete;

 private:
  struct sigaction before_[std::size(kForwarded)];
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

/// The child gets the signals as a program expects them: kiln ignores some, and handles others.
void use_default_signals(posix_spawnattr_t& attributes) {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : kForwarded) ::sigaddset(&signals, signal);
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::sigaddset(&signals, signal);
  ::posix_spawnattr_setsigdefault(&attributes, &signals);
  ::sigemptyset(&signals);
  ::posix_spawnattr_setsigmask(&attributes, &signals);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
}

}  // namespace

int run_wrapped(const WrappedCommand& command) {
  std::vector<std::string> argv = command.argv, environment = environment_of(command);
  const std::vector<char*> arguments = pointers_to(argv), variables = pointers_to(environment);
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_t actions;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_init(&actions);
  use_default_signals(attributes);
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

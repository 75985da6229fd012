#include "tools/kiln/cli/child_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/text.hpp"
#include "kiln/error.hpp"

extern char** environ;

namespace kiln::cli {
namespace {

struct Pipe {
  base::Fd read, write;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
      throw Error(Errc::io, std::string("cannot make a pipe: ") + std::strerror(errno));
    read = base::Fd(ends[0]), write = base::Fd(ends[1]);
  }
};

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& argv) {
  Pipe to, from;
  std::vector<char*> arguments;
  arguments.reserve(argv.size() + 1);
  for (const std::string& a : argv) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, to.read.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, from.write.get(), STDOUT_FILENO);
  const int failed = ::posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw Error(Errc::io, "cannot start '" + argv[0] + "': " + std::strerror(failed));
  in_ = std::move(to.write), out_ = std::move(from.read);
}

ChildProcess::~ChildProcess() {
  in_.reset(), out_.reset();
  kill();
}
void ChildProcess::kill() noexcept {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  wait();
}

std::string ChildProcess::read_all() {
  std::string out;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(out_.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return out;
    out.append(buffer, static_cast<std::size_t>(got));
  }
}

bool ChildProcess::read_line(std::string& line) {
  std::size_t end;
  while ((end = unread_.find('\n')) == std::string::npos) {
    char buffer[4096];
    const ssize_t got = ::read(out_.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    unread_.append(buffer, static_cast<std::size_t>(got));
  }
  line = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  return true;
}

bool ChildProcess::wait_for_byte(int milliseconds) {
  pollfd wait{out_.get(), POLLIN, 0};
  char byte;
  return ::poll(&wait, 1, milliseconds) == 1 && ::read(out_.get(), &byte, 1) == 1;
}

int ChildProcess::wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string find_program(const std::string& name, const std::vector<std::string>& directories) {
  const char* path = std::getenv("PATH");
  std::vector<std::string> all = base::split(path ? path : "", ':');
  all.insert(all.end(), directories.begin(), directories.end());
  for (const std::string& directory : all) {
    std::string candidate = directory;
    candidate.append("/").append(name);
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

}  // namespace kiln::cli

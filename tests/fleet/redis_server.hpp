// A real redis-server for one test, on a Unix socket and on free loopback ports.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/fd.hpp"
#include "base/file.hpp"
#include "cache/fleet/redis/client.hpp"

namespace kiln::testing {

/// A loopback port that is free now.
inline int free_port() {
  const base::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return 0;
  ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

/// A child process that ends with the test.
class Process {
 public:
  Process() = default;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() { kill(); }

  bool start(const std::vector<std::string>& words, const std::string& log) {
    kill();
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
    const bool fine = ::posix_spawnp(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ) == 0;
    ::posix_spawn_file_actions_destroy(&actions);
    if (!fine) pid_ = -1;
    return fine;
  }
  void signal(int number) const {
    if (pid_ > 0) ::kill(pid_, number);
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  bool running() {
    if (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) != 0) pid_ = -1;
    return pid_ > 0;
  }

 private:
  pid_t pid_ = -1;
};

inline bool have_program(const std::string& name) {
  return std::system(("command -v '" + name + "' > /dev/null 2>&1").c_str()) == 0;
}

/// The server's program. KILN_TEST_REDIS_SERVER names another server of the protocol, such as Valkey.
inline std::string redis_server() {
  const char* given = std::getenv("KILN_TEST_REDIS_SERVER");
  return given && *given ? given : "redis-server";
}

/// A server that writes nothing to disk. It listens on socket(), and with `tcp` on port().
class RedisServer {
 public:
  /// More lines of configuration, as command line words: {"--requirepass", "x"}.
  explicit RedisServer(std::vector<std::string> more = {}, bool tcp = true)
      : more_(std::move(more)), tcp_(tcp) {
    for (int tries = 0; tries < 5 && !process_.running(); ++tries) {
      port_ = 0;  // another process has taken the free port
      start();
    }
  }

  static bool installed() { return have_program(redis_server()); }

  /// Starts the server, or starts it again on the same socket and port. Waits until it answers.
  void start() {
    if (port_ == 0) port_ = free_port();
    std::vector<std::string> words = {redis_server(),    "--port",      tcp_ ? std::to_string(port_) : "0",
                                      "--bind",          "127.0.0.1",   "--unixsocket",
                                      socket(),          "--save",      "",
                                      "--appendonly",    "no",          "--dir",
                                      directory_.path(), "--daemonize", "no"};
    words.insert(words.end(), more_.begin(), more_.end());
    process_.start(words, directory_.path() + "/log");
    base::poll_until(base::Deadline::after(std::chrono::seconds(20)), [&] {
      return base::read_proc(directory_.path() + "/log").find("eady to accept connections") !=
                 std::string::npos ||
             !process_.running();
    });
    ::unlink((directory_.path() + "/log").c_str());
  }
  bool running() { return process_.running(); }
  void stop() { process_.kill(); }
  void pause() { process_.signal(SIGSTOP); }
  void resume() { process_.signal(SIGCONT); }

  std::string socket() const { return directory_.path() + "/socket"; }
  int port() const { return port_; }
  std::string unix_url() const { return "redis+unix://" + socket(); }
  /// A URL for processes that must not give the server up when the machine is busy.
  std::string patient_url() const { return unix_url() + "?timeout=20000"; }
  std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_); }
  const std::string& directory() const { return directory_.path(); }

 private:
  const base::TempDir directory_{"kiln-redis-"};
  const std::vector<std::string> more_;
  const bool tcp_;
  int port_ = 0;
  Process process_;
};

}  // namespace kiln::testing

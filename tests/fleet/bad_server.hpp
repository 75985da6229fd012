// A server that runs a test's script, on a loopback port or a Unix socket. Its answers need not be true.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.hpp"
#include "base/fd.hpp"

namespace kiln::testing {

/// The server's end of a connection.
class Peer {
 public:
  Peer(int fd, int number, const std::atomic<bool>& ending) : fd_(fd), number_(number), ending_(ending) {}
  /// The connection's number; 0 is the first connection of the server.
  int number() const { return number_; }
  int fd() const { return fd_; }

  /// The words of the next command; empty when the client has closed the connection.
  std::vector<std::string> command() {
    std::string line;
    if (!read_line(line) || line.empty() || line[0] != '*') return {};
    std::vector<std::string> words(static_cast<std::size_t>(std::atoi(line.c_str() + 1)));
    for (std::string& word : words) {
      if (!read_line(line)) return {};
      word.resize(static_cast<std::size_t>(std::atoi(line.c_str() + 1)));
      for (char& c : word)
        if (!read_byte(c)) return {};
      if (!read_line(line)) return {};
    }
    return words;
  }
  bool say(const std::string& bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t sent = ::send(fd_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      at += static_cast<std::size_t>(sent);
    }
    return true;
  }
  bool say_bulk(const std::string& text) {
    return say('$' + std::to_string(text.size()) + "\r\n" + text + "\r\n");
  }
  /// Waits for this time. False when the server ended meanwhile.
  bool wait(std::chrono::milliseconds time) {
    return !base::poll_until(base::Deadline::after(time), [&] { return ending_.load(); });
  }
  void wait_for_the_end() { wait(std::chrono::hours(1)); }

 private:
  bool read_byte(char& c) {
    if (at_ == buffer_.size()) {
      buffer_.resize(64 << 10);
      const ssize_t got = ::recv(fd_, buffer_.data(), buffer_.size(), 0);
      buffer_.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
      at_ = 0;
      if (got <= 0) return false;
    }
    c = buffer_[at_++];
    return true;
  }
  bool read_line(std::string& line) {
    line.clear();
    for (char c = 0; read_byte(c);) {
      if (c == '\n') return true;
      if (c != '\r') line += c;
    }
    return false;
  }

  const int fd_, number_;
  const std::atomic<bool>& ending_;
  std::string buffer_;
  std::size_t at_ = 0;
};

/// Runs `script` on a thread for each connection, and closes the connection when the script ends.
class BadServer {
 public:
  using Script = std::function<void(Peer&)>;

  explicit BadServer(Script script)
      : script_(std::move(script)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::listen(listener_.get(), 64) != 0)
      std::abort();
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    accepting_ = std::thread([this] { accept(); });
  }
  BadServer(const BadServer&) = delete;
  BadServer& operator=(const BadServer&) = delete;
  ~BadServer() {
    ending_ = true;
    accepting_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
  }

  int port() const { return port_; }
  std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_); }
  int connections() const { return connections_; }

 private:
  void accept() {
    while (!ending_) {
      pollfd poll{listener_.get(), POLLIN, 0};
      if (::poll(&poll, 1, 10) <= 0) continue;
      const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      const int on = 1;  // like Redis: answers of a pipeline do not wait for the client's ACK
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      const std::lock_guard lock(mutex_);
      open_.push_back(fd);
      threads_.emplace_back([this, fd, number = connections_++] {
        Peer peer(fd, number, ending_);
        script_(peer);
        const std::lock_guard closing(mutex_);
        std::erase(open_, fd);
        ::close(fd);
      });
    }
  }

  const Script script_;
  base::Fd listener_;
  int port_ = 0;
  std::atomic<int> connections_{0};
  std::atomic<bool> ending_{false};
  std::mutex mutex_;  // guards all members below
  std::vector<int> open_;
  std::vector<std::thread> threads_;
  std::thread accepting_;
};

}  // namespace kiln::testing

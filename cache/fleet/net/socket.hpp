// A socket that never blocks and raises no signal.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/process.hpp"

namespace kiln::fleet {

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;

  static Address unix_socket(const std::string& path) noexcept;
  /// Nothing when `host` is a name and no IPv4 or IPv6 address (a scope is allowed: "fe80::1%eth0").
  static std::optional<Address> numeric(const std::string& host, std::uint16_t port);
  friend bool operator==(const Address& a, const Address& b) noexcept;
};

/// How an operation on a socket or a channel went.
enum class Io : std::uint8_t { done, again, closed, failed };

/// Closed in a forked child. Not thread-safe.
class Socket {
 public:
  Socket() = default;
  /// Begins to connect. `done`: connected already; `again`: wait until it can be written, then connected().
  Io connect(const Address& address) noexcept;
  /// After the wait: `done`, or `failed`.
  Io connected() noexcept;
  /// When done, `moved` bytes were sent or received.
  Io send(std::string_view bytes, std::size_t& moved) noexcept;
  Io receive(char* into, std::size_t size, std::size_t& moved) noexcept;
  int fd() const noexcept { return fd_ ? fd_->get() : -1; }
  /// errno of the last failure.
  int error() const noexcept { return error_; }

 private:
  Io failed() noexcept;

  std::optional<base::ClosedAtFork> fd_;
  int error_ = 0;
};

}  // namespace kiln::fleet

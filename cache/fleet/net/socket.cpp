#include "cache/fleet/net/socket.hpp"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace kiln::fleet {

bool operator==(const Address& a, const Address& b) noexcept {
  return a.size == b.size && std::memcmp(&a.bytes, &b.bytes, a.size) == 0;
}

Address Address::unix_socket(const std::string& path) noexcept {
  Address address;
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  path.copy(un.sun_path, sizeof un.sun_path - 1);
  std::memcpy(&address.bytes, &un, sizeof un);
  address.size = sizeof un;
  return address;
}

std::optional<Address> Address::numeric(const std::string& host, std::uint16_t port) {
  Address address;
  sockaddr_in v4{};
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&address.bytes, &v4, sizeof v4);
    address.size = sizeof v4;
    return address;
  }
  sockaddr_in6 v6{};
  const auto percent = std::min(host.find('%'), host.size());
  if (::inet_pton(AF_INET6, host.substr(0, percent).c_str(), &v6.sin6_addr) != 1) return std::nullopt;
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  if (percent < host.size()) v6.sin6_scope_id = ::if_nametoindex(host.c_str() + percent + 1);
  std::memcpy(&address.bytes, &v6, sizeof v6);
  address.size = sizeof v6;
  return address;
}

Io Socket::failed() noexcept {
  error_ = errno;
  return Io::failed;
}

Io Socket::connect(const Address& address) noexcept {
  fd_.reset();
  const int fd = ::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return failed();
  fd_.emplace(fd);
  if (address.bytes.ss_family != AF_UNIX) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  int result = 0;
  do {
    result = ::connect(fd, reinterpret_cast<const sockaddr*>(&address.bytes), address.size);
  } while (result != 0 && errno == EINTR && address.bytes.ss_family == AF_UNIX);
  if (result == 0) return Io::done;
  if (errno == EINPROGRESS || errno == EINTR) return Io::again;  // TCP goes on connecting after a signal
  return failed();
}

Io Socket::connected() noexcept {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return failed();
  if (error == 0) return Io::done;
  error_ = error;
  return Io::failed;
}

Io Socket::send(std::string_view bytes, std::size_t& moved) noexcept {
  for (;;) {
    const ssize_t sent = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      moved = static_cast<std::size_t>(sent);
      return Io::done;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Io::again;
    error_ = errno;
    return errno == EPIPE || errno == ECONNRESET ? Io::closed : Io::failed;
  }
}

Io Socket::receive(char* into, std::size_t size, std::size_t& moved) noexcept {
  for (;;) {
    const ssize_t got = ::recv(fd(), into, size, MSG_DONTWAIT);
    if (got > 0) {
      moved = static_cast<std::size_t>(got);
      return Io::done;
    }
    if (got == 0) return Io::closed;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Io::again;
    error_ = errno;
    return errno == ECONNRESET ? Io::closed : Io::failed;
  }
}

}  // namespace kiln::fleet

// A channel is a socket, with TLS around it or not. It never blocks.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "cache/fleet/net/socket.hpp"
#include "cache/fleet/net/tls.hpp"

namespace kiln::fleet {

/// Not thread-safe.
class Channel {
 public:
  Socket& socket() noexcept { return socket_; }
  const Socket& socket() const noexcept { return socket_; }
  /// Puts TLS around the socket. REQUIRES: no handshake(), write() or read() came before.
  void secure(std::unique_ptr<TlsSession> session) noexcept { tls_ = std::move(session); }
  bool is_secured() const noexcept { return tls_ != nullptr; }

  Io handshake();
  /// When done, `moved` bytes were taken. They have gone out when unsent() is false.
  Io write(std::string_view bytes, std::size_t& moved);
  Io read(char* into, std::size_t size, std::size_t& moved);
  Io flush();
  bool unsent() const noexcept { return sent_ < secret_.size(); }
  /// Returns whether the server has neither closed the connection nor said anything between exchanges.
  bool quiet();
  /// The reason of the last failure, for people. `tls` receives whether TLS failed.
  std::string why(bool& tls) const;

 private:
  Io receive();
  Io exchange_secrets();

  Socket socket_;
  std::unique_ptr<TlsSession> tls_;
  std::string secret_;  // for the network, from sent_ on
  std::size_t sent_ = 0;
};

}  // namespace kiln::fleet

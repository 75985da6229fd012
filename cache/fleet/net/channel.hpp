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
  /// Before the first handshake(), write() and read().
  void secure(std::unique_ptr<TlsSession> session) noexcept { tls_ = std::move(session); }
  bool is_secured() const noexcept { return tls_ != nullptr; }

  Io handshake();
  /// `moved` bytes were taken, when done. They have gone out when unsent() is false.
  Io write(std::string_view bytes, std::size_t& moved);
  Io read(char* into, std::size_t size, std::size_t& moved);
  Io flush();
  bool unsent() const noexcept { return sent_ < secret_.size(); }
  /// Between exchanges: the server neither went nor said anything.
  bool quiet();
  /// What failed, for people. `tls`: TLS did.
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

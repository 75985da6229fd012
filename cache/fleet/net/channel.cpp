#include "cache/fleet/net/channel.hpp"

#include <algorithm>
#include <system_error>

namespace kiln::fleet {
namespace {
constexpr std::size_t kStep = 32 << 10;  // bytes encrypted or decrypted at a time
/// Pieces in a row of which TLS makes nothing (session tickets, HelloRequests). After this many the caller
/// looks at its clock: all that came is in TLS by then, so further bytes make the socket readable.
constexpr int kVain = 16;
}  // namespace

Io Channel::flush() {
  while (unsent()) {
    std::size_t moved = 0;
    const Io io = socket_.send(std::string_view(secret_).substr(sent_), moved);
    if (io != Io::done) return io;
    sent_ += moved;
  }
  secret_.clear();
  sent_ = 0;
  return Io::done;
}

Io Channel::receive() {
  char buffer[kStep];
  std::size_t moved = 0;
  const Io io = socket_.receive(buffer, sizeof buffer, moved);
  if (io == Io::done) tls_->give({buffer, moved});
  return io;
}

/// Sends what TLS has to say and reads what there is. A server that closes may have said why, so its bytes
/// are read even when nothing can be sent any more.
Io Channel::exchange_secrets() {
  tls_->take(secret_);
  const Io out = flush();
  const Io in = receive();
  return in == Io::again && (out == Io::closed || out == Io::failed) ? out : in;
}

Io Channel::handshake() {
  for (int vain = 0;; ++vain) {
    const Io io = tls_->handshake();
    if (io == Io::again) {
      if (vain == kVain) {
        tls_->take(secret_);
        flush();
        return Io::again;
      }
      if (const Io in = exchange_secrets(); in != Io::done) return in;
      continue;
    }
    tls_->take(secret_);  // the last bytes; after a failure, the alert that says why
    const Io out = flush();
    return io == Io::done && (out == Io::closed || out == Io::failed) ? out : io;
  }
}

Io Channel::write(std::string_view bytes, std::size_t& moved) {
  if (!tls_) return socket_.send(bytes, moved);
  if (const Io io = flush(); io != Io::done) return io;
  const Io io = tls_->write(bytes.substr(0, kStep), moved);
  tls_->take(secret_);
  if (io != Io::done) return io;
  const Io out = flush();
  return out == Io::again ? Io::done : out;
}

Io Channel::read(char* into, std::size_t size, std::size_t& moved) {
  if (!tls_) return socket_.receive(into, size, moved);
  for (int vain = 0;; ++vain) {
    const Io io = tls_->read(into, size, moved);
    if (io != Io::again || vain == kVain) return io;
    if (const Io in = exchange_secrets(); in != Io::done) return in;
  }
}

bool Channel::quiet() {
  char byte = 0;
  std::size_t moved = 0;
  return read(&byte, 1, moved) == Io::again;  // TLS: session tickets may come and say nothing
}

std::string Channel::why(bool& tls) const {
  tls = tls_ && !tls_->why().empty();
  return tls ? tls_->why() : std::system_category().message(socket_.error());
}

}  // namespace kiln::fleet

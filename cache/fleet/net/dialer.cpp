#include "cache/fleet/net/dialer.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>

namespace kiln::fleet {

Io Dialer::start(Socket& socket, Time now, Time until) {
  until_ = until;
  return next(socket, now);
}

Io Dialer::step(Socket& socket, Time now) {
  Io io = Io::again;
  if (retry_) {
    --next_;
    io = next(socket, now);
  } else if (socket.fd() >= 0) {
    pollfd poll{socket.fd(), POLLOUT, 0};
    if (::poll(&poll, 1, 0) > 0) io = taken(socket, socket.connected());
    if (io == Io::failed) io = next(socket, now);
  }
  if (io == Io::again && now >= address_until_ && now < until_) io = next(socket, now);
  return io;
}

Io Dialer::next(Socket& socket, Time now) {
  Io io = Io::failed;
  while (io == Io::failed && next_ < addresses_.size()) {
    const auto left = static_cast<base::Clock::rep>(addresses_.size() - next_);
    address_until_ = now + std::max(base::Clock::duration::zero(), until_ - now) / left;
    io = taken(socket, socket.connect(addresses_[next_++]));
  }
  return io;
}

/// Judges how trying an address went; `failed` asks for the next address.
Io Dialer::taken(Socket& socket, Io io) {
  retry_ = false;
  if (io == Io::done || io == Io::again) return io;
  retry_ = socket.error() == EAGAIN && addresses_[next_ - 1].bytes.ss_family == AF_UNIX;
  return retry_ ? Io::again : Io::failed;
}

}  // namespace kiln::fleet

// The dialer connects a socket to the first of several addresses that answers.
#pragma once

#include <cstddef>
#include <vector>

#include "base/deadline.hpp"
#include "cache/fleet/net/socket.hpp"

namespace kiln::fleet {

/// A state machine that never waits. Not thread-safe.
class Dialer {
 public:
  using Time = base::Clock::time_point;

  explicit Dialer(std::vector<Address> addresses) : addresses_(std::move(addresses)) {}

  /// Tries the first address. The addresses share the time until `until` equally. `done`: connected; `again`:
  /// wait for `wants_write` or `until()`, then step(); `failed`: no address is left.
  Io start(Socket& socket, Time now, Time until);
  Io step(Socket& socket, Time now);
  /// False for a Unix socket whose queue is full, which is tried again after a while.
  bool wants_write() const noexcept { return !retry_; }
  /// When the next address is tried.
  Time until() const noexcept { return address_until_; }
  bool has_addresses() const noexcept { return !addresses_.empty(); }

 private:
  Io next(Socket& socket, Time now);
  Io taken(Socket& socket, Io io);

  const std::vector<Address> addresses_;
  std::size_t next_ = 0;
  bool retry_ = false;  // a Unix socket whose queue is full
  Time address_until_{}, until_{};
};

}  // namespace kiln::fleet

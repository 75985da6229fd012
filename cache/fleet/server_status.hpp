// The statistics of one server: what it has done for this process so far.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

#include "cache/fleet/fault.hpp"
#include "cache/fleet/net/breaker.hpp"

namespace kiln::fleet {

struct ServerStatus {
  std::string name;  ///< "host:port", or a Unix socket's path
  Breaker::State breaker = Breaker::State::closed;
  std::chrono::milliseconds opens_in{0};  ///< until an open breaker lets a request through
  std::uint64_t times_opened = 0;
  std::array<std::uint64_t, kFaults> faults{};  ///< answers by fault; [none]: answers without one
  std::uint64_t commands = 0, exchanges = 0, connections = 0;  ///< connections: made so far
  std::uint64_t bytes_in = 0, bytes_out = 0;
  int open_connections = 0;
  /// Round trips of the last 1,024 answered exchanges, without the time to connect.
  std::chrono::microseconds round_trip_p50{0}, round_trip_p99{0};
  std::string last_error;  ///< "timeout: not answered within 150 ms"

  std::uint64_t count(Fault fault) const noexcept { return faults[static_cast<std::size_t>(fault)]; }
};

}  // namespace kiln::fleet

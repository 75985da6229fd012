// A node of the simulation, and constants that the simulation's files share.
#pragma once

#include "tests/fleet/simulation.hpp"

namespace kiln::fleet::simulation {

inline constexpr Micros kMilli = 1000, kSecond = 1'000'000;
/// The deadline of a read, and the longest time that a command may arrive after its sender has given up.
inline constexpr Micros kReadDeadline = 150 * kMilli, kLatest = 5 * kSecond;

inline Micros micros(Span span) {
  return std::chrono::duration_cast<std::chrono::microseconds>(span).count();
}
inline std::string value_of(const Key& key) { return "entry of " + key.hex(); }

struct Simulation::Node {
  std::size_t index = 0;
  std::unique_ptr<Leases> leases;
  std::map<Key, Ask> asks;
  std::map<Key, std::size_t> compiling;  // index of the key's last compile in compiles_
  std::map<Key, std::string> tokens;     // the last token that was sent, for the server's record of leases
  bool alive = true, paused = false, cut_off = false, busy = false, reads_only = false;
  std::vector<std::function<void()>> when_resumed;
  Micros paused_in_all = 0;
  std::uint64_t wakes = 0;
  double rate = 1;  // the speed of the node's clock
  Micros epoch = 0, stood_still = 0;
  std::vector<std::pair<Micros, Micros>> silences;  // periods in which the node cannot reach the server
  int failures = 0;                                 // in a row, for the breaker
  Micros open_until = -1;

  Time time(Micros now) const {
    return Time(std::chrono::microseconds(
        epoch + static_cast<Micros>(static_cast<double>(now - stood_still) * rate)));
  }
  Micros virtual_time(Time when) const {
    const auto since = std::chrono::duration_cast<std::chrono::microseconds>(when.time_since_epoch()).count();
    return static_cast<Micros>(static_cast<double>(since - epoch) / rate) + stood_still + 1;
  }
};

}  // namespace kiln::fleet::simulation

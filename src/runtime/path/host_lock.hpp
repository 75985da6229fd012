// Step 3 of the path between processes: the host's lock on a key, so that one of them compiles it.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "cache/flight/flight.hpp"
#include "runtime/path/unit.hpp"

namespace kiln::runtime {

/// Thread-safe.
class HostLock {
 public:
  /// `leaving` ends waits for other processes.
  HostLock(ServiceState& state, const std::atomic<bool>& leaving) : state_(state), leaving_(leaving) {}

  /// Null: compile without it, since there is none or it could not be had in time. Throws what the holder's
  /// compile failed with, when this call waited for it.
  std::shared_ptr<cache::Flight> take(const Unit& unit);
  /// Who compiles what on this host; empty without a flight file.
  std::vector<cache::BoardEntry> board();

 private:
  cache::FlightFile::Taken wait_for(cache::FlightFile& file, const Unit& unit, std::exception_ptr& theirs);

  ServiceState& state_;
  const std::atomic<bool>& leaving_;
};

}  // namespace kiln::runtime

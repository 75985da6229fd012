// Step 3 of the path between processes: the host's lock on a key, so that one process compiles it.
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
  /// Once `leaving` is true, waits for other processes end.
  HostLock(ServiceState& state, const std::atomic<bool>& leaving) : state_(state), leaving_(leaving) {}

  /// Takes the lock. Null: compile without it, because there is no flight file or the lock could not be had
  /// in time. Throws the error of the holder's compile when this call waited for it, and Error(deadline) when
  /// `leaving` ended the wait.
  std::shared_ptr<cache::Flight> take(const Unit& unit);
  /// The board of this host: which process compiles what. Empty without a flight file.
  std::vector<cache::BoardEntry> board();

 private:
  cache::FlightFile::Taken wait_for(cache::FlightFile& file, const Unit& unit, std::exception_ptr& theirs);

  ServiceState& state_;
  const std::atomic<bool>& leaving_;
};

}  // namespace kiln::runtime

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
  explicit HostLock(ServiceState& state) : state_(state) {}

  /// Takes the lock. Null: compile without it, because there is no flight file or the lock could not be had
  /// in time. Throws the error of the holder's compile when this call waited for it, and Error(deadline) when
  /// stop() ended the wait.
  std::shared_ptr<cache::Flight> take(const Unit& unit);
  /// The board of this host: which process compiles what. Empty without a flight file.
  std::vector<cache::BoardEntry> board();
  /// Ends waits for other processes, also those that begin later.
  void stop() noexcept { stopped_ = true; }

 private:
  cache::FlightFile::Taken wait_for(cache::FlightFile& file, const Unit& unit, std::exception_ptr& theirs);

  ServiceState& state_;
  std::atomic<bool> stopped_{false};
};

}  // namespace kiln::runtime

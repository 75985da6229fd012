// Step 4 of the path: the fleet's tier, asked behind the host's lock and so by one process of a host, and the
// way of what is compiled here into it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "base/lazy.hpp"
#include "cache/fleet/tier.hpp"
#include "runtime/path/flight.hpp"
#include "runtime/path/foreign.hpp"

namespace kiln::runtime {

/// Thread-safe.
class FleetLookup {
 public:
  struct Answer {
    std::optional<Obtained> found;
    cache::Record record;                     ///< of what was found
    std::shared_ptr<fleet::HeldLease> lease;  ///< of a compile for the fleet
  };

  FleetLookup(ServiceState& state, ForeignRecords& foreign) : state_(state), foreign_(foreign) {}

  /// Null when none is configured, or it cannot be used (which is warned of once). Touches no network.
  std::shared_ptr<fleet::Tier> tier();
  bool is_open() const noexcept { return tier_.made() != nullptr; }
  /// What the tier has is believed as a record of the disk is: it is signed, its key text is the one that was
  /// asked for, and its facts can be read. Otherwise, and when the server fails, it is a miss. A service that
  /// can compile takes at most `most_leases` leases at once.
  Answer ask(const Unit& unit, const ObtainOptions& options, const Flight& flight, int most_leases);
  /// Takes a compiled record on to the tier; empty when it does not go there. The lease goes with it, and
  /// ends when the fleet has the record or never will.
  Publication::Afterwards afterwards(std::shared_ptr<fleet::HeldLease> lease, const Obtained& obtained,
                                     const ObtainOptions& options);
  /// A plan row that was not there, for the job that fills the tier. Waits for nothing. A node that has a key
  /// to sign with sends nothing: it is that job, or its fleet compiles.
  void report_missing(std::string row);
  /// False when the deadline passed before all records that were handed over are there or were dropped.
  bool flush(base::Deadline deadline);
  /// Ends what waits for the network or for another node. Nothing is asked afterwards.
  void stop() noexcept;
  /// Of the tier, if somebody asked for it.
  void read(kiln_stats& out);

 private:
  std::optional<Obtained> find_own(fleet::Tier& tier, const Unit& unit, const Flight& flight, int most_leases,
                                   Answer& out, bool& absent);
  std::optional<Obtained> find_foreign(fleet::Tier& tier, const Unit& unit, const ObtainOptions& options,
                                       cache::Record& record);

  ServiceState& state_;
  ForeignRecords& foreign_;
  std::atomic<bool> stopped_{false};
  base::Lazy<std::shared_ptr<fleet::Tier>> tier_;
};

}  // namespace kiln::runtime

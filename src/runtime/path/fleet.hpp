// Step 4 of the path: the fleet's tier. It is asked under the host's lock, so by one process of a host.
// Records that are compiled here go to it from here, too.
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
    cache::Record record;                     ///< record of what was found
    std::shared_ptr<fleet::HeldLease> lease;  ///< lease of a compile for the fleet
  };

  FleetLookup(ServiceState& state, ForeignRecords& foreign) : state_(state), foreign_(foreign) {}

  /// The tier. Null when none is configured, or when it cannot be used (one warning). Touches no network.
  std::shared_ptr<fleet::Tier> tier();
  bool is_open() const noexcept { return tier_.made() != nullptr; }
  /// Asks the tier. An entry is believed as a record on disk is: it is signed, has the key text that was
  /// asked for, and its facts can be read. Any other entry, or a failing server, is a miss. A service that
  /// can compile takes at most `most_leases` leases at once.
  Answer ask(const Unit& unit, const ObtainOptions& options, const Flight& flight, int most_leases);
  /// A function that takes a compiled record on to the tier; empty when the record does not go there. The
  /// lease goes with the record. It ends when the fleet has the record or never will.
  Publication::Afterwards afterwards(std::shared_ptr<fleet::HeldLease> lease, const Obtained& obtained,
                                     const ObtainOptions& options);
  /// Sends the plan row of a missing kernel to the job that fills the tier. Waits for nothing. A node with a
  /// signing key sends nothing: it is that job, or its fleet compiles.
  void report_missing(std::string row);
  /// Waits until all records that were handed over are in the tier or were dropped. False when the deadline
  /// passed first.
  bool flush(base::Deadline deadline);
  /// Ends waits for the network and for other nodes. Nothing is asked afterwards.
  void stop() noexcept;
  /// Adds the figures of the tier, if it was opened.
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

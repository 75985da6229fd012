// Step 2 of the path: the layers, the store that is read in the writable one's place, and the writable store.
#pragma once

#include <optional>

#include "runtime/path/foreign.hpp"

namespace kiln::runtime {

/// yes: the lookup counts as a hit or a miss. no: it changes no counter.
enum class Counted { yes, no };

/// Thread-safe.
class DiskLookup {
 public:
  DiskLookup(ServiceState& state, ForeignRecords& foreign) : state_(state), foreign_(foreign) {}

  /// The record of exactly this key, else another toolchain's record where the call takes one. A store that
  /// cannot be read in time is a miss.
  std::optional<Obtained> find(const Unit& unit, const ObtainOptions& options, Counted counted);

 private:
  std::optional<Obtained> find_own(const Unit& unit, const ObtainOptions& options, Counted counted);
  std::optional<Obtained> find_foreign(const Unit& unit, const ObtainOptions& options);
  void count_hit(Counters::Count& hits, const Obtained& found, Counted counted);

  ServiceState& state_;
  ForeignRecords& foreign_;
};

}  // namespace kiln::runtime

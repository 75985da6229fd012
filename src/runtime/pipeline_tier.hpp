// What step 4 gave. Private to pipeline*.cpp.
#pragma once

#include "cache/fleet/tier.hpp"
#include "runtime/pipeline_unit.hpp"

namespace kiln::runtime {

struct Pipeline::FromTier {
  std::optional<Obtained> found;
  cache::Record record;                     ///< of what was found, but for its image
  std::shared_ptr<fleet::HeldLease> lease;  ///< of a compile for the fleet
};

struct Pipeline::Flight {
  Flight(compile::Urgency how_urgent, bool compiles) : urgency(how_urgent), may_compile(compiles) {}
  std::atomic<compile::Urgency> urgency;
  const bool may_compile;  ///< false: it ends with the tier
  std::promise<Obtained> promise;
  std::shared_future<Obtained> result = promise.get_future().share();
};

}  // namespace kiln::runtime

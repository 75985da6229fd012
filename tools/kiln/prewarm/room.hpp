// Room for a prewarm's plan in its store: an estimate before the run, a check after it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/kiln/plan/run.hpp"
#include "tools/kiln/store/key/sentences.hpp"

namespace kiln::cli {

/// The part of a run's results that the stores have at the run's end.
struct PlanRoom {
  std::vector<bool> kept;           ///< for each task of the plan: true when a store has its image
  std::size_t evicted = 0;          ///< images that this run stored or found and that are gone at its end
  std::uint64_t evicted_bytes = 0;  ///< estimated size of the evicted images
  std::uint64_t cap_bytes = 0;      ///< the store's cap
  std::uint64_t enough_bytes = 0;   ///< estimated cap with which nothing is evicted

  /// For a run with evicted images: names the cap, the size that did not fit, and a sufficient cap.
  std::string sentence() const;
};
/// Asks for each key all stores that a lookup asks; it does not matter which process evicted an image. An
/// image that could not be cached at all (PrewarmResult::uncached) does not count as evicted.
PlanRoom look_for_room(runtime::Core& core, const PrewarmResult& result);

/// Warns when the plan will probably not fit under the cap. The estimate uses the store's entries:
/// - a specialisation that is stored counts with its own size;
/// - another one counts with the mean size of its template's entries;
/// - one whose template has no entry counts as 0.
void warn_without_room(runtime::Core& core, const PrewarmPlan& plan);

}  // namespace kiln::cli

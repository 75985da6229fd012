// Whether the store that a prewarm fills has room for its plan: an estimate before the run, a look after it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/kiln/plan/run.hpp"
#include "tools/kiln/store/key_sentences.hpp"

namespace kiln::cli {

/// What the store, or one that is only read, has of a run's results when the run has ended.
struct PlanRoom {
  std::vector<bool> kept;           ///< for each task of the plan: its image is there
  std::size_t evicted = 0;          ///< images that this run stored or found, and that are gone by its end
  std::uint64_t evicted_bytes = 0;  ///< what they would take; an estimate
  std::uint64_t cap_bytes = 0;      ///< the store's cap
  std::uint64_t enough_bytes = 0;   ///< a cap under which nothing has to go; an estimate

  /// For a run whose images were evicted: says the cap, how much did not fit, and which cap would do.
  std::string sentence() const;
};
/// Asks every store that a lookup asks for each key, whoever evicted it. What could not be cached at all
/// (PrewarmResult::uncached) does not count as evicted.
PlanRoom look_for_room(runtime::Core& core, const PrewarmResult& result);

/// Warns when the entries that the store has of the plan's templates say that the plan does not fit under the
/// cap. A specialisation that was stored before counts with its own size, another one with the mean of its
/// template's entries, and one whose template has no entry with nothing.
void warn_without_room(runtime::Core& core, const PrewarmPlan& plan);

}  // namespace kiln::cli

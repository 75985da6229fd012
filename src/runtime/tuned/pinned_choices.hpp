// Tuned choices as this process has resolved them. The first answer for a call holds until the process ends,
// even the answer that there is no choice. So no choice that is stored meanwhile changes what
// runs (docs/internals/path.md, "Tuned choices").
//
// Each bucket is a list that only grows, by one pointer and without a lock. So a forked child has what its
// parent had resolved, and no lock that a missing thread could hold.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kiln/digest.hpp"
#include "kiln/specialization.hpp"

namespace kiln::runtime {

struct PinnedChoice {
  std::vector<Parameter> chosen;  ///< empty: the defaults hold
  std::optional<Key> key;         ///< key of the record that it came from
};

/// The pinned choice of a call; null when the call is not resolved yet. `call` names template, manifest,
/// arch, device and the given values. Thread-safe.
const PinnedChoice* pinned_choice(const std::string& call) noexcept;
/// Pins `choice`, unless another thread has pinned one meanwhile. Returns the choice that holds from
/// now on. Thread-safe.
const PinnedChoice& pin_choice(const std::string& call, PinnedChoice choice);

}  // namespace kiln::runtime

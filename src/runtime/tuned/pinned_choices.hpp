// Tuned choices as this process has resolved them: the first answer for a call holds until the process ends,
// also the answer that there is none, so that no choice stored meanwhile changes what runs (DESIGN 7).
//
// A list per bucket that only grows, by one pointer and without a lock: a forked child has what its parent
// had resolved, and nothing that a thread which it does not have could hold.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kiln/digest.hpp"
#include "kiln/specialization.hpp"

namespace kiln::runtime {

struct PinnedChoice {
  std::vector<Parameter> chosen;  ///< empty: the defaults hold
  std::optional<Key> key;         ///< of the record that it came from
};

/// Thread-safe. `call` names template, manifest, arch, device and what was given. Null: not resolved yet.
const PinnedChoice* pinned_choice(const std::string& call) noexcept;
/// What holds from now on: `choice`, or what another thread has pinned meanwhile.
const PinnedChoice& pin_choice(const std::string& call, PinnedChoice choice);

}  // namespace kiln::runtime

// The fleet's tier as commands see it: configured or an error. What they ask its servers is the seam's
// (cache/fleet/upkeep.hpp).
#pragma once

#include <memory>
#include <string>

#include "cache/fleet/tier.hpp"
#include "cache/fleet/upkeep.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

/// --strict of `kiln remote`'s subcommands.
void add_strict_option(Command sub, bool& strict);

/// Throws Error(invalid_argument) when none is configured or it cannot be used.
std::shared_ptr<fleet::Tier> configured_tier(Context& context);
/// The same, which must have a key to sign with.
std::shared_ptr<fleet::Tier> writable_tier(Context& context);

/// Keys of one question to a server: enough to hide the round trip, few enough that values fit.
inline constexpr std::size_t kKeysAtOnce = 16;

/// The first fault that a command met.
struct FirstFault {
  std::string text;   ///< empty: none
  bool down = false;  ///< a server did not answer; otherwise it refused

  explicit operator bool() const noexcept { return !text.empty(); }
  void note(fleet::Fault fault, const std::string& detail);
  void note(const fleet::Outcome& outcome) { note(outcome.fault, outcome.detail); }
  Json json() const { return text.empty() ? Json(nullptr) : Json(text); }
};

/// Exit status of a command whose servers did not all answer: kRemoteDown when that was to be an error.
int remote_down(bool strict, int otherwise);

/// "id 4AB3F5B4E5CFA1E5"
std::string id_of(const trust::PublicKey& key);

}  // namespace kiln::cli

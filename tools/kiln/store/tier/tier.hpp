// The fleet's tier as commands use it: a configured tier, or an error. Requests to its servers
// go through cache/fleet/upkeep.hpp.
#pragma once

#include <memory>
#include <string>

#include "cache/fleet/tier.hpp"
#include "cache/fleet/upkeep.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

/// Adds --strict, an option of the `kiln remote` subcommands.
void add_strict_option(Command sub, bool& strict);

/// Throws Error(invalid_argument) when no tier is configured, or the tier cannot be used.
std::shared_ptr<fleet::Tier> configured_tier(Context& context);
/// The configured tier. Throws Error(invalid_argument) also when there is no key to sign with.
std::shared_ptr<fleet::Tier> writable_tier(Context& context);

/// Keys in one request to a server: enough to hide the round trip, few enough that the values fit.
inline constexpr std::size_t kKeysAtOnce = 16;

/// The first fault that a command met.
struct FirstFault {
  std::string text;   ///< empty: none
  bool down = false;  ///< true: a server did not answer; false: a server refused

  explicit operator bool() const noexcept { return !text.empty(); }
  void note(fleet::Fault fault, const std::string& detail);
  void note(const fleet::Outcome& outcome) { note(outcome.fault, outcome.detail); }
  Json json() const { return text.empty() ? Json(nullptr) : Json(text); }
};

/// Names the fault and the tier on stderr. Does nothing without a fault.
void warn_of(const FirstFault& fault, const fleet::Tier& tier);

/// Exit status of a command after a server did not answer: kRemoteDown when `strict`, else `otherwise`.
int remote_down(bool strict, int otherwise);

/// "id 4AB3F5B4E5CFA1E5"
std::string id_of(const trust::PublicKey& key);

}  // namespace kiln::cli

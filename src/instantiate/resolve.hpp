// A caller's values against the manifest: nothing that is not whitelisted goes any further.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/arch.hpp"
#include "kiln/specialization.hpp"
#include "manifest/manifest.hpp"

namespace kiln::source {

/// Every parameter resolved and checked. `slots` has the layout of Manifest::slots, with parameters, derives
/// and arch filled in and the rest zero.
struct Resolved {
  Specialization specialization;
  std::vector<std::int64_t> slots;
  base::Arch arch;
  /// Of the call that it was resolved from: the parameters, by name, that a tuned choice gives or may give,
  /// and that a row of a plan says were `tuned`. Undecided: nobody has looked for a choice, and these are all
  /// that the call left to their defaults; a row leaves them open, too.
  std::vector<std::string> open{};
  bool undecided = false;
};

/// Positional values (shorter lists and unset values take defaults). Checks kinds, whitelists, arch and every
/// [[require]] that needs no argument. Throws Error(unknown_parameter | invalid_value | requirement |
/// unsupported_arch | invalid_argument); the message names template, parameter, value and what is allowed.
enum class Archs { supported, any };  ///< any: the manifest's [template] arch is not looked at
Resolved resolve(const Manifest& manifest, std::span<const Value> values, base::Arch arch,
                 Archs archs = Archs::supported);
/// Its parameters, derives and arch in the layout of `manifest`: the one it was resolved for, or one of its
/// entries. The rest is zero.
std::vector<std::int64_t> slots_of(const Manifest& manifest, const Resolved& resolved);
/// Named values into manifest order. Throws Error(unknown_parameter) for unknown and repeated names, with the
/// nearest name.
std::vector<Value> positional(const Manifest& manifest, std::span<const NamedValue> named);
/// "T=bf16" pieces as the command line has them, also as three words "T", "=",
/// "bf16"; the returned views point into `pieces`.
std::vector<NamedValue> parse_assignments(std::span<const std::string> pieces);

}  // namespace kiln::source

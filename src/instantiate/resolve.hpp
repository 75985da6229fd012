// Checks a caller's values against the manifest: only values that the manifest allows get past this step.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/arch.hpp"
#include "kiln/specialization.hpp"
#include "manifest/manifest.hpp"

namespace kiln::source {

/// Every parameter, resolved and checked. `slots` has the layout of Manifest::slots: parameters, derives and
/// arch have values, and the rest is zero.
struct Resolved {
  Specialization specialization;
  std::vector<std::int64_t> slots;
  base::Arch arch;
  /// Names of the parameters that the original call left open: a tuned choice gives or may give their values.
  /// A row of a plan lists them as `tuned`. When `undecided` is set, no choice was looked for yet. Then
  /// `open` has all parameters that the call left to their defaults, and a row gives them no value.
  std::vector<std::string> open{};
  bool undecided = false;
};

/// Resolves positional values; parameters beyond the list and unset values take defaults. Checks kinds,
/// allowed values, arch, and every [[require]] that needs no argument. Throws Error(unknown_parameter |
/// invalid_value | requirement | unsupported_arch | invalid_argument). The message names template, parameter,
/// value and what is allowed.
enum class Archs { supported, any };  ///< any: [template] arch is not checked
Resolved resolve(const Manifest& manifest, std::span<const Value> values, base::Arch arch,
                 Archs archs = Archs::supported);
/// The parameters, derives and arch of `resolved` in the slot layout of `manifest`; all other slots are zero.
/// `manifest` is the manifest that it was resolved for, or one of the manifest's entries.
std::vector<std::int64_t> slots_of(const Manifest& manifest, const Resolved& resolved);
/// Puts named values into manifest order. Throws Error(unknown_parameter) for a repeated name, and for an
/// unknown name, with the nearest name that exists.
std::vector<Value> positional(const Manifest& manifest, std::span<const NamedValue> named);
/// Splits pieces such as "T=bf16" of a command line; the three words "T", "=", "bf16" count as one piece. The
/// returned views point into `pieces`. Throws Error(invalid_argument).
std::vector<NamedValue> parse_assignments(std::span<const std::string> pieces);

}  // namespace kiln::source

// The parameters of a call that a tuning search may choose, their candidate values, and a
// choice as values of a call.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "instantiate/instantiate.hpp"

namespace kiln::source {

/// Indices of the parameters that have `tune` candidates and that `values` leaves to their defaults. `values`
/// are positional, as for resolve().
std::vector<std::size_t> free_to_tune(const Manifest& manifest, std::span<const Value> values);

/// One combination that a search times.
struct Candidate {
  Resolved resolved;
  std::vector<Parameter> chosen;  ///< values of the free parameters, in manifest order
};
struct Candidates {
  std::vector<Candidate> all;  ///< the default first; each specialisation once
  /// Combinations that the manifest refuses, each with the message that the caller would get:
  /// "THREADS=64 ROWS=8", "..."
  std::vector<std::pair<std::string, std::string>> refused;
};
inline constexpr std::size_t kMaxCandidates = 4096;

/// All combinations of the free parameters' `tune` lists, where each list also has the default as a value.
/// Combinations that the manifest refuses, or that accept fewer launches than the default (stricter()), are
/// in `refused`. Throws as resolve() does when the default itself is refused. Throws Error(manifest) for more
/// than kMaxCandidates combinations.
Candidates tune_candidates(const Manifest& manifest, std::span<const Value> values, base::Arch arch);

/// `values` with the chosen values for the free parameters; the result has views into `chosen`. Nothing
/// unless `chosen` names exactly the free parameters, in order, with values that the manifest allows.
std::optional<std::vector<Value>> with_choice(const Manifest& manifest, std::span<const Value> values,
                                              std::span<const Parameter> chosen);

}  // namespace kiln::source

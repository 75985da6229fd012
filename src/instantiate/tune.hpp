// Which parameters of a call a search may choose, what it may choose among, and a choice as values again.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "instantiate/instantiate.hpp"

namespace kiln::source {

/// Indices of the parameters that have `tune` candidates and that `values` (as resolve takes them) leaves to
/// their defaults.
std::vector<std::size_t> free_to_tune(const Manifest& manifest, std::span<const Value> values);

/// One row of a search.
struct Candidate {
  Resolved resolved;
  std::vector<Parameter> chosen;  ///< of the free parameters, in manifest order
};
struct Candidates {
  std::vector<Candidate> all;  ///< the default first; each specialisation once
  /// What the manifest refuses, as the caller would be told: "THREADS=64 ROWS=8: ..."
  std::vector<std::pair<std::string, std::string>> refused;
};
inline constexpr std::size_t kMaxCandidates = 4096;

/// The product of the free parameters' `tune` lists, each with "its default" as one more value, as far as the
/// manifest takes them and takes as many launches with them as by default (stricter()). Throws as resolve
/// when the default itself is refused, and Error(manifest) for more than kMaxCandidates products.
Candidates tune_candidates(const Manifest& manifest, std::span<const Value> values, base::Arch arch);

/// `values` with the chosen ones in the places of the free parameters; views into `chosen`. Nothing unless
/// `chosen` names just these, in order, with values that the manifest allows.
std::optional<std::vector<Value>> with_choice(const Manifest& manifest, std::span<const Value> values,
                                              std::span<const Parameter> chosen);

}  // namespace kiln::source

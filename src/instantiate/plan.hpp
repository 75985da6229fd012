// Plans: the [[prewarm]] tables of manifests and plan files, multiplied out.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kiln/specialization.hpp"
#include "manifest/manifest.hpp"

namespace kiln::source {

/// Where a row stands, for messages about what it asks for.
struct PlanRow {
  std::string file;
  int line = 0;
  std::vector<std::pair<std::string, int>> keys;  ///< the line of each key; empty for a manifest's rows

  /// "plan.toml:7: [[prewarm]] H"; of the row itself when it has no such key.
  std::string where(std::string_view key = {}) const;
};

/// One member of a row's product.
struct PlannedSpecialization {
  std::string template_name;
  std::vector<Parameter> values;     ///< by name, as text; those not named take their defaults
  std::string arch;                  ///< "sm_90a"; empty: the caller's default
  std::vector<std::string> tuned{};  ///< of `values`: those that the call which was recorded had left open
  std::shared_ptr<const PlanRow> row;
};

/// What became of the rest of a plan's text.
struct PlanNotes {
  std::size_t repeats = 0;           ///< asked for again, and left out
  std::vector<std::string> ignored;  ///< "FILE:LINE: ..." of a record's rows that were never finished
};

/// The cross product of the manifest's [[prewarm]] rows, in order, repeats removed.
std::vector<PlannedSpecialization> shipped_plan(const Manifest& manifest, PlanNotes* notes = nullptr);
/// That of a plan file's or a record's tables (instantiate/trace_text.hpp). Throws Error(manifest)
/// "FILE:LINE: ...", also for more than kMaxPlanned together.
std::vector<PlannedSpecialization> parse_plan(std::string_view toml, const std::string& file,
                                              PlanNotes* notes = nullptr);

}  // namespace kiln::source

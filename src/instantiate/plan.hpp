// Plans: the [[prewarm]] tables of manifests and plan files, expanded to single specialisations.
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

/// Where a row was written, for messages about the specialisations that it asks for.
struct PlanRow {
  std::string file;
  int line = 0;
  std::vector<std::pair<std::string, int>> keys;  ///< the line of each key; empty for a manifest's rows

  /// "plan.toml:7: [[prewarm]] H". Without such a key, the text names the line of the row itself.
  std::string where(std::string_view key = {}) const;
};

/// One combination of a row's values and archs.
struct PlannedSpecialization {
  std::string template_name;
  std::vector<Parameter> values;     ///< by name, as text; other parameters take their defaults
  std::string arch;                  ///< "sm_90a"; empty: the caller's default
  std::vector<std::string> tuned{};  ///< names among `values` that the recorded call had left open
  std::shared_ptr<const PlanRow> row;
};

/// The parts of a plan that were left out.
struct PlanNotes {
  std::size_t repeats = 0;  ///< specialisations that an earlier row, or the same row, had already asked for
  std::vector<std::string> ignored;  ///< "FILE:LINE: ..." for each row of a record that was never finished
};

/// Every combination of values and archs of each [[prewarm]] row of the manifest, in order and without
/// repeats. Throws Error(manifest) for more than kMaxPlanned.
std::vector<PlannedSpecialization> shipped_plan(const Manifest& manifest, PlanNotes* notes = nullptr);
/// The specialisations that a row of parse_plan() stands for, once its template is known. A value "*" stands for every
/// value of its parameter. Throws Error(invalid_value) where that parameter lists no values, and Error(manifest) for
/// more than kMaxPlanned.
std::vector<PlannedSpecialization> with_every_value(const PlannedSpecialization& planned,
                                                    const Manifest& manifest);
/// Every combination of the [[prewarm]] rows of a plan file or a record (instantiate/trace_text.hpp). Throws
/// Error(manifest) "FILE:LINE: ...", also for more than kMaxPlanned together.
std::vector<PlannedSpecialization> parse_plan(std::string_view toml, const std::string& file,
                                              PlanNotes* notes = nullptr);

}  // namespace kiln::source

// Results of `kiln run`, as a table for people and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/run/check.hpp"

namespace kiln::cli {

/// Results of one size, with the scalar arguments and run-time values that were used.
struct SizeResult {
  std::vector<Parameter> values;
  std::vector<CheckedArgument> check;  ///< empty: not requested, or there is no reference
  std::optional<BenchResult> bench;
};

/// Prints a line for each size. Values that are equal for all sizes and not in `given` stand above the table.
/// REQUIRES: at least one result, and all results are of one template.
void print_sizes(const std::vector<SizeResult>& results, const std::vector<std::string>& given);

/// The JSON fields of one size: arguments and, when requested, check and bench.
Json json_of(const SizeResult& result);

}  // namespace kiln::cli

// What `kiln run` found, as a table for people and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/run/check.hpp"

namespace kiln::cli {

/// One size: scalar arguments and run-time values as they were, and what was asked for.
struct SizeResult {
  std::vector<Parameter> values;
  std::vector<CheckedArgument> check;  ///< empty: not asked for, or nothing to compare with
  std::optional<BenchResult> bench;
};

/// A line for each size. Values that are the same for all and are not among `given` stand above the table.
/// REQUIRES: one result at least, all of the same template.
void print_sizes(const std::vector<SizeResult>& results, const std::vector<std::string>& given);

/// The fields of one size: arguments and, where they were asked for, check and bench.
Json json_of(const SizeResult& result);

}  // namespace kiln::cli

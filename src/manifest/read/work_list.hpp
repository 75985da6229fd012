// [plan]: the work list that a launch reads, and what `kiln run` plans for. What a kind of work list needs of
// a manifest is a row of kKinds.
#pragma once

#include "manifest/read/draft.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

/// How many values [plan.run] declares, then their names; the rest of [plan] when the arguments are read.
int count_run_values(const TableReader& root);
void declare_plan(Draft& draft, const TableReader& root);
void read_plan(Draft& draft, const TableReader& root);

}  // namespace kiln::source

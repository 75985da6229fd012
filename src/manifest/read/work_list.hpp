// Reads [work_list], or [plan], its old name. A WorkListKind says which keys the table has.
#pragma once

#include "manifest/read/draft.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

/// Finds the table and its kind among `kinds`, before its other keys are read.
void find_work_list(Draft& draft, const TableReader& root, WorkListKinds kinds);
/// Number of values that [work_list.run] declares.
int count_run_values(const Draft& draft);
/// Checks the keys and declares the names of the run values.
void declare_work_list(Draft& draft, const TableReader& root);
/// Reads the other keys, once the arguments are read and expressions may name them.
void read_work_list(Draft& draft, const TableReader& root);

}  // namespace kiln::source

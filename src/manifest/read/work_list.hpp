// Reads [work_list], or [plan], which is its old name. Which keys a table has is data: a WorkListKind.
#pragma once

#include "manifest/read/draft.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

/// Finds the table and its kind among `kinds`, before anything else of it is read.
void find_work_list(Draft& draft, const TableReader& root, WorkListKinds kinds);
/// How many values [work_list.run] declares.
int count_run_values(const Draft& draft);
/// Checks the keys, and takes the names of the run values.
void declare_work_list(Draft& draft, const TableReader& root);
/// Reads the rest, once expressions may name arguments and those have been read.
void read_work_list(Draft& draft, const TableReader& root);

}  // namespace kiln::source

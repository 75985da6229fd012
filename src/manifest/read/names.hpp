// The names that expressions may use, each with its slot.
#pragma once

#include "manifest/read/draft.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

/// Counts every name, so that all slots are known before the first expression is compiled.
void lay_out_slots(Draft& draft, const TableReader& root);
/// Reads names and types of [[arg]], and names of [runtime] and [derive], for the Symbols.
void declare_arguments(Draft& draft, const TableReader& root);
void make_symbols(Draft& draft, const TableReader& root);

}  // namespace kiln::source

// What expressions know: every name with its slot.
#pragma once

#include "manifest/read/draft.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

/// Counts every name, so that slots are known before the first expression is compiled.
void lay_out_slots(Draft& draft, const TableReader& root);
/// Names and types of [[arg]], names of [runtime] and [derive]: what the Symbols need.
void declare_arguments(Draft& draft, const TableReader& root);
void make_symbols(Draft& draft, const TableReader& root);

}  // namespace kiln::source

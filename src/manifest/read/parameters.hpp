// [param.*]: kinds, values and their C++ texts; then defaults and [derive].
#pragma once

#include "manifest/read/draft.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

/// Reads [param.*] without the defaults.
void read_parameters(Draft& draft, const TableReader& root);
/// Compiles and orders defaults and derives, and checks constant ones.
void read_defaults(Draft& draft, const TableReader& root);

}  // namespace kiln::source

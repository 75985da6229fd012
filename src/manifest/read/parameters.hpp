// [param.*]: kinds, values and how C++ spells them; then defaults and [derive].
#pragma once

#include "manifest/read/draft.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

/// All of [param.*] but the defaults.
void read_parameters(Draft& draft, const TableReader& root);
/// Defaults and derives: compiled, ordered, checked where they are constant.
void read_defaults(Draft& draft, const TableReader& root);

}  // namespace kiln::source

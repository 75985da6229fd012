// [[global]] and [export], which callers may ask of the image; also checks of C++ texts
// of values and defines.
#pragma once

#include "manifest/read/draft.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

void read_globals(Draft& draft, const TableReader& root);
/// Declares the names of [export]. Their texts are read when the parameters are known.
void declare_exports(Draft& draft, const TableReader& root);
void read_exports(Draft& draft, const TableReader& root);
/// Checks the {P} of every value's C++ text and of every define.
void check_spellings(Draft& draft, const TableReader& root);

}  // namespace kiln::source

// Reads [[tensormap]] and the list of the kernel's arguments.
#pragma once

#include "manifest/read/draft.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

/// Reads the names, so that other tables know them.
void declare_tensor_maps(Draft& draft, const TableReader& root);
/// Reads the rest. REQUIRES: the arguments were read.
void read_tensor_maps(Draft& draft, const TableReader& root);
/// Reads `arguments` of [template], which says what the kernel is passed.
void read_passed(Draft& draft, const TableReader& root);

}  // namespace kiln::source

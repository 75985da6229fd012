// Reads [family].
#pragma once

#include "manifest/read/draft.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

/// REQUIRES: the parameters and arguments were read.
void read_family(Draft& draft, const TableReader& root);

}  // namespace kiln::source

// [bind]: the operators of a template.
#pragma once

#include "manifest/read/draft.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

/// Reads [bind] or each [[bind]]. REQUIRES: parameters, arguments and requirements were read.
void read_binds(Draft& draft, const TableReader& root);

}  // namespace kiln::source

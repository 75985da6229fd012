// [[arg]] and [runtime]: shapes, strides, values, fills.
#pragma once

#include "manifest/read/draft.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

void read_arguments(Draft& draft, const TableReader& root);

}  // namespace kiln::source

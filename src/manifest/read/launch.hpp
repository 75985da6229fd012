// [launch], [reference], [cost] and [[require]].
#pragma once

#include "manifest/read/draft.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

void read_launch(Draft& draft, const TableReader& root);
void read_requirements(Draft& draft, const TableReader& root);

}  // namespace kiln::source

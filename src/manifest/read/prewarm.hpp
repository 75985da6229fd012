// [[prewarm]] rows of a manifest.
#pragma once

#include "manifest/read/draft.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

void read_prewarm(Draft& draft, const TableReader& root);

}  // namespace kiln::source

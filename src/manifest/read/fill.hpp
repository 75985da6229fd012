// [[arg]] fill: the values that `kiln run` puts into an input.
#pragma once

#include "manifest/read/draft.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

/// Reads `fill`. REQUIRES: the [[arg]] has one.
ArgumentSpec::Fill read_fill(const Draft& draft, const ArgumentSpec& argument, const TableReader& reader);

}  // namespace kiln::source

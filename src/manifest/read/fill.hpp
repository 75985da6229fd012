// [[arg]] fill: what `kiln run` puts into an input.
#pragma once

#include "manifest/read/draft.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

/// `fill` of an [[arg]] that has one.
ArgumentSpec::Fill read_fill(const Draft& draft, const ArgumentSpec& argument, const TableReader& reader);

}  // namespace kiln::source

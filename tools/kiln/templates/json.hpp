// A template as JSON.
#pragma once

#include "source/catalog.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

/// One element of the list.
Json json_summary(const source::Template& origin);
/// Everything.
Json json_of(const source::Template& origin);

}  // namespace kiln::cli

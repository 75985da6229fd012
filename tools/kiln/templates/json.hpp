// A template as JSON.
#pragma once

#include "manifest/catalog.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

/// One element of the list.
Json json_summary(const source::Template& origin);
/// Everything.
Json json_of(const source::Template& origin);

}  // namespace kiln::cli

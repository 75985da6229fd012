// The answer to `kiln --version`: the release, its build, and the versions of its formats.
#pragma once

#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

/// The object of `kiln --version --json` (docs/schema/version.json).
Json version_json();

}  // namespace kiln::cli

// The template path, and whether every manifest on it parses.
#pragma once

#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {

/// Template path and every manifest.
void probe_templates(Context& context, Findings& out);

}  // namespace kiln::cli

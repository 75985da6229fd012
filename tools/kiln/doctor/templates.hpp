// Probes of the template path: whether every manifest on it parses.
#pragma once

#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {

/// Probes the template path and every manifest on it.
void probe_templates(Context& context, Findings& out);

}  // namespace kiln::cli

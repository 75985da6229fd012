// Probes of the machine's resources for compiles, and of settings that kiln does not know.
#pragma once

#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {

/// Reports cores, memory, the number of parallel compiles, and unknown settings.
void probe_machine(Context& context, Findings& out);

}  // namespace kiln::cli

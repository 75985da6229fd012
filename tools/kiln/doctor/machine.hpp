// What the machine gives to compiles, and settings that nobody knows.
#pragma once

#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {

/// Cores, memory, how many compiles at once; settings that nobody knows.
void probe_machine(Context& context, Findings& out);

}  // namespace kiln::cli

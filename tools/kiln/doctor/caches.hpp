// Probes of the caches of other JIT compilers: their settings in this environment, and their spaces in the store.
#pragma once

#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {

/// Finds out whether a Python program that starts from this environment would use kiln's caches as it says.
void probe_cache_settings(Findings& out);
/// Reports each space of the store that is used: what it has, and what went wrong with it.
void probe_spaces(const runtime::Config& config, Findings& out);

}  // namespace kiln::cli

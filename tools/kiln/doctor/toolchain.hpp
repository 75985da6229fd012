// Probes of the compiler and of the loader.
#pragma once

#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {

/// Probes libraries, headers, the worker, a compile, the driver, the GPU, and a load of the image.
void probe_toolchain(Context& context, Findings& out);

}  // namespace kiln::cli

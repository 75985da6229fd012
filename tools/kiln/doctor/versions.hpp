// Checks that NVRTC, its builtins and the included headers are of one toolkit version.
#pragma once

#include "tools/kiln/doctor/empty_kernel.hpp"
#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {

/// Compares the versions of the toolkit's parts with each other.
void probe_versions(const toolchain::Toolkit& toolkit, const EmptyKernel& kernel, Findings& out);

}  // namespace kiln::cli

// A toolkit is of one version: NVRTC, its builtins and the headers that sources include.
#pragma once

#include "tools/kiln/doctor/empty_kernel.hpp"
#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {

/// The parts of the toolkit against each other.
void probe_versions(const toolchain::Toolkit& toolkit, const EmptyKernel& kernel, Findings& out);

}  // namespace kiln::cli

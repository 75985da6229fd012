// What compiles and what loads.
#pragma once

#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {

/// Libraries, headers, worker, a compile, driver, GPU, loading the image.
void probe_toolchain(Context& context, Findings& out);

}  // namespace kiln::cli

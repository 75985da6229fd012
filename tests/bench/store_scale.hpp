// See store_scale.cpp.
#pragma once

namespace kiln::bench {

/// Prints one table.
void run_scale();

}  // namespace kiln::bench

// CPU time of this process and of everything it has started.
#pragma once

#include <optional>

namespace kiln::cli {

/// Milliseconds so far, children of children and those that have ended included. Nothing where /proc does not
/// tell.
std::optional<double> cpu_time_ms();

}  // namespace kiln::cli

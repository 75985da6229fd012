// CPU time of this process and of all processes that it has started.
#pragma once

#include <optional>

namespace kiln::cli {

/// Milliseconds so far, with all descendants, ended ones included. Nothing when /proc does not tell.
std::optional<double> cpu_time_ms();

}  // namespace kiln::cli

// The text of a plan file, or of a pipe that somebody writes a plan into.
#pragma once

#include <string>

namespace kiln::cli {

/// All of it: of something else than a regular file (`<(...)`, /dev/stdin) up to its end, which waits for the
/// writer. Throws Error(io) for what cannot be read, and for more than 64 MiB.
std::string read_plan_text(const std::string& file);

}  // namespace kiln::cli

// Reads the text of a plan file, or of a pipe that a plan is written to.
#pragma once

#include <string>

namespace kiln::cli {

/// Reads all of `file`. A file that is not regular (`<(...)`, /dev/stdin) is read to its end, which waits for
/// the writer. Throws Error(io) when the file cannot be read or has more than 64 MiB.
std::string read_plan_text(const std::string& file);

}  // namespace kiln::cli

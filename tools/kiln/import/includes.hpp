// Declarations in the project's own headers that a kernel's signature may use.
#pragma once

#include <string>
#include <vector>

#include "tools/kiln/import/source.hpp"

namespace kiln::cli {

/// Adds enums, aliases, macros and includes from the headers that `source` reaches. `source` was read from
/// `file`; its headers are searched in its own directory and in `directories`, and their includes are
/// followed. Unreadable files are left out, and at most a few hundred are read. Returns where headers declare
/// `kernel`: "ns::kernel in other.cuh:12".
std::vector<std::string> add_includes(CudaSource& source, const std::string& file,
                                      const std::vector<std::string>& directories, const std::string& kernel,
                                      const Macros& macros = {});

}  // namespace kiln::cli

// What the project's own headers declare that a kernel's signature may name.
#pragma once

#include <string>
#include <vector>

#include "tools/kiln/import/source.hpp"

namespace kiln::cli {

/// Adds the enums, aliases, macros and includes of the headers that `source`, read from `file`, includes from
/// its own directory or one of `directories`, and of theirs. What cannot be read is left out; a few hundred
/// at most. Returns where kernels are that only they declare: "ns::kernel in other.cuh:12".
std::vector<std::string> add_includes(CudaSource& source, const std::string& file,
                                      const std::vector<std::string>& directories, const std::string& kernel,
                                      const Macros& macros = {});

}  // namespace kiln::cli

// SASS text from NVIDIA's own tools, which kiln does not ship.
#pragma once

#include <string>

#include "toolchain/locate.hpp"

namespace kiln::cli {

/// Runs nvdisasm or cuobjdump from PATH or the toolkit's bin directories. Throws Error(io) when there is
/// neither, saying where to get one, or when the tool failed.
std::string disassemble(const std::string& cubin, const toolchain::Toolkit& toolkit,
                        const std::string& cuda_home);

}  // namespace kiln::cli

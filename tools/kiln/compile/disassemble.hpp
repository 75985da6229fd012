// SASS by NVIDIA's own tools, which kiln does not ship.
#pragma once

#include <string>

#include "toolchain/locate.hpp"

namespace kiln::cli {

/// By nvdisasm or cuobjdump from PATH or the toolkit's bin directories. Throws Error(io) that says where to
/// get one when there is none, or that it failed.
std::string disassemble(const std::string& cubin, const toolchain::Toolkit& toolkit,
                        const std::string& cuda_home);

}  // namespace kiln::cli

// An image for the driver's probe: a kernel that does nothing.
#pragma once

#include <string>

namespace kiln::cli {

/// The image of the empty kernel, for the driver's probe.
struct EmptyKernel {
  std::string image, lowered_name, arch;
  std::string compiler_version;  ///< "13.0"
};

}  // namespace kiln::cli

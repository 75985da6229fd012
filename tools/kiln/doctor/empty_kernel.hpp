// The image of an empty kernel, for the driver's probe.
#pragma once

#include <string>

namespace kiln::cli {

/// An empty kernel that was compiled.
struct EmptyKernel {
  std::string image, lowered_name, arch;
  std::string compiler_version;  ///< "13.0"
};

}  // namespace kiln::cli

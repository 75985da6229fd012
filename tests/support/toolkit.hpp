// The machine's real toolkit, or the one that KILN_CUDA_HOME names (the wheels that tools/test.sh fetches).
#pragma once

#include <cstdlib>

#include "toolchain/locate.hpp"

namespace kiln::testing {

inline toolchain::Toolkit real_toolkit() {
  const char* home = std::getenv("KILN_CUDA_HOME");
  return toolchain::locate_toolkit({home ? home : "", true});
}

}  // namespace kiln::testing

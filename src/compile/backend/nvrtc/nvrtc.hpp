// NVRTC as a compiler of kiln.
#pragma once

#include "compile/backend/backend.hpp"

namespace kiln::compile {

const Backend& nvrtc_backend() noexcept;

}  // namespace kiln::compile

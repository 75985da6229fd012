// NVRTC as a Backend.
#pragma once

#include "compile/backend/backend.hpp"

namespace kiln::compile {

const Backend& nvrtc_backend() noexcept;

}  // namespace kiln::compile

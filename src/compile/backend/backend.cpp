#include "compile/backend/backend.hpp"

#include "compile/backend/nvrtc/nvrtc.hpp"

namespace kiln::compile {

const Backend& backend() noexcept { return nvrtc_backend(); }

}  // namespace kiln::compile

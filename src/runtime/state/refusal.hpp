// What the refusal of a kernel that is not ready tells its caller to do.
#pragma once

#include <string>

#include "instantiate/trace_text.hpp"

namespace kiln::runtime {

/// "; a plan for `kiln prewarm` that makes it ready:" and that plan: the end of every such message, before
/// the seal and after it.
inline std::string remedy(const source::Resolved& resolved) {
  return "; a plan for `kiln prewarm` that makes it ready:\n" + source::trace_row(resolved);
}

}  // namespace kiln::runtime

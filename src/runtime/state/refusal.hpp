// The advice in a message that refuses a kernel which is not ready.
#pragma once

#include <string>

#include "instantiate/trace_text.hpp"

namespace kiln::runtime {

/// The end of every such message, before the seal and after it: "; a plan for `kiln prewarm` that makes it
/// ready:", and the plan.
inline std::string remedy(const source::Resolved& resolved) {
  return "; a plan for `kiln prewarm` that makes it ready:\n" + source::trace_row(resolved);
}

}  // namespace kiln::runtime

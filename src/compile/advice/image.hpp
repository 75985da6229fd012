// Advice about what ptxas refuses: an arch without the instruction, and resources that no SM has.
#pragma once

#include <span>

#include "compile/advice/rules.hpp"

namespace kiln::compile {

/// Errors of ptxas.
std::span<const AdviceRule> image_rules();

}  // namespace kiln::compile

// Advice about errors of ptxas: an arch without the instruction, and resources that no SM has.
#pragma once

#include <span>

#include "compile/advice/rules.hpp"

namespace kiln::compile {

std::span<const AdviceRule> image_rules();

}  // namespace kiln::compile

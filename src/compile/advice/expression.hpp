// Advice about C++ texts of the manifest: `instantiate` and [export].
#pragma once

#include <span>

#include "compile/advice/rules.hpp"

namespace kiln::compile {

std::span<const AdviceRule> expression_rules();

}  // namespace kiln::compile

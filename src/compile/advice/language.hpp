// Advice about code that device code cannot have: host code, launches, exceptions, ...
#pragma once

#include <span>

#include "compile/advice/rules.hpp"

namespace kiln::compile {

std::span<const AdviceRule> language_rules();

}  // namespace kiln::compile

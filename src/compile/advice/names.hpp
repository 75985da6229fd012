// Advice about missing headers, and about names that no included header declares.
#pragma once

#include <span>

#include "compile/advice/rules.hpp"

namespace kiln::compile {

std::span<const AdviceRule> name_rules();

}  // namespace kiln::compile

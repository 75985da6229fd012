// Advice about headers that are missing and names that no included header declares.
#pragma once

#include <span>

#include "compile/advice/rules.hpp"

namespace kiln::compile {

/// Missing headers, and names whose header is not included.
std::span<const AdviceRule> name_rules();

}  // namespace kiln::compile

// Advice about C++ text of the manifest: instantiate and [export].
#pragma once

#include <span>

#include "compile/advice/rules.hpp"

namespace kiln::compile {

/// instantiate and [export].
std::span<const AdviceRule> expression_rules();

}  // namespace kiln::compile

// Advice about what the compiler of device code does not take: host code, launches, exceptions, ...
#pragma once

#include <span>

#include "compile/advice/rules.hpp"

namespace kiln::compile {

/// Host code, launches, exceptions, ...: what device code does not have.
std::span<const AdviceRule> language_rules();

}  // namespace kiln::compile

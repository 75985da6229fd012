// The operands and measures of an operator that is being read.
#pragma once

#include <string>
#include <string_view>

#include "manifest/bind/spec.hpp"

namespace kiln::source {

int operand_index(const BindSpec& spec, std::string_view name);  ///< -1 when absent
/// REQUIRES: `index` is an operand.
const BindOperand& operand_at(const BindSpec& spec, int index);
/// The slot of a measure, which is added with this name when the operator does not have it yet.
int measure(BindSpec& spec, BindMeasure wanted, const std::string& name);

}  // namespace kiln::source

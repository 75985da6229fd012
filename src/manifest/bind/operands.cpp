#include "manifest/bind/operands.hpp"

#include <algorithm>

namespace kiln::source {

int operand_index(const BindSpec& spec, std::string_view name) {
  const auto found = std::find_if(spec.operands.begin(), spec.operands.end(),
                                  [&](const BindOperand& o) { return o.name == name; });
  return found == spec.operands.end() ? -1 : static_cast<int>(found - spec.operands.begin());
}

const BindOperand& operand_at(const BindSpec& spec, int index) {
  return spec.operands[static_cast<std::size_t>(index)];
}

int measure(BindSpec& spec, BindMeasure wanted, const std::string& name) {
  const auto found = std::find(spec.measures.begin(), spec.measures.end(), wanted);
  const auto index = static_cast<int>(found - spec.measures.begin());
  if (found == spec.measures.end()) spec.measures.push_back(wanted), spec.measure_names.push_back(name);
  return spec.first_slot + index;
}

}  // namespace kiln::source

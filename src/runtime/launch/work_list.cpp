#include "runtime/launch/work_list.hpp"

#include <string>

#include "kiln/error.hpp"

namespace kiln::runtime {

WorkListFacts work_list_facts(const source::Manifest& manifest, const source::WorkListSpec& list,
                              std::span<const std::int64_t> slots) {
  WorkListFacts out;
  for (const auto& [name, expression] : list.kernel) out.kernel.push_back(expression.evaluate(slots));
  out.workers = manifest.arguments[static_cast<std::size_t>(list.workers)].value.evaluate(slots);
  return out;
}

std::uint64_t workspace_bytes(const source::Manifest& manifest, const source::WorkListSpec& list,
                              std::span<const std::int64_t> slots, std::int64_t workers) {
  if (list.workspace < 0) return 0;
  const source::ArgumentSpec& argument = manifest.arguments[static_cast<std::size_t>(list.workspace)];
  std::vector<std::int64_t> known(slots.begin(), slots.end());
  known[static_cast<std::size_t>(manifest.slots.argument_slot(list.workers))] = workers;
  const int parameter = argument.type.dtype_parameter;
  const Dtype dtype = parameter >= 0 ? static_cast<Dtype>(known[static_cast<std::size_t>(parameter)])
                                     : argument.type.dtype.value_or(Dtype::u8);
  std::int64_t bytes = static_cast<std::int64_t>(size_of(dtype));
  for (const source::Expression& extent : argument.shape) {
    const std::int64_t value = extent.evaluate(known);
    if (value < 0 || __builtin_mul_overflow(bytes, value, &bytes))
      throw Error(Errc::requirement, "the workspace '" + argument.name + "' of template '" + manifest.name +
                                         "' would have " + extent.text() + " = " + std::to_string(value) +
                                         " elements in a dimension");
  }
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace kiln::runtime

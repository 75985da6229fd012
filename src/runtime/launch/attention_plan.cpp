#include "runtime/launch/attention_plan.hpp"

#include <string>
#include <vector>

#include "kiln/error.hpp"

namespace kiln::runtime {
namespace {

const source::HostPlanSpec& plan_of(const source::Manifest& manifest) {
  if (manifest.plan && manifest.plan->kind == "attention") return *manifest.plan;
  throw Error(Errc::invalid_argument,
              "the manifest of template '" + manifest.name + "' has no [plan] of kind \"attention\"");
}

}  // namespace

attention::KernelShape attention_shape(const source::Manifest& manifest,
                                       std::span<const std::int64_t> slots) {
  const source::HostPlanSpec& plan = plan_of(manifest);
  const auto value = [&](std::string_view key) { return plan.of(key).evaluate(slots); };
  return {.tile_rows = value("tile_rows"),
          .tile_kv = value("tile_kv"),
          .group = value("group"),
          .causal = value("causal") != 0,
          .window = value("window") != 0,
          .tile_cost = value("tile_cost"),
          .min_units = value("min_units"),
          .tiles_together = value("tiles_together") != 0,
          .heads_together = value("heads_together") != 0};
}

std::int64_t attention_workers(const source::Manifest& manifest, std::span<const std::int64_t> slots) {
  return manifest.arguments[static_cast<std::size_t>(plan_of(manifest).workers)].value.evaluate(slots);
}

std::uint64_t attention_workspace_bytes(const source::Manifest& manifest, std::span<const std::int64_t> slots,
                                        std::int64_t workers) {
  const source::HostPlanSpec& plan = plan_of(manifest);
  if (plan.workspace < 0) return 0;
  const source::ArgumentSpec& argument = manifest.arguments[static_cast<std::size_t>(plan.workspace)];
  std::vector<std::int64_t> known(slots.begin(), slots.end());
  known[static_cast<std::size_t>(manifest.slots.argument_slot(plan.workers))] = workers;
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

#include "runtime/launch/recipe.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace kiln::runtime {

using namespace toolchain;
using source::ArgumentSpec;
using source::Expression;

namespace {

/// The bits that the kernel gets for a float argument that was left out.
template <class Float>
std::uint64_t bits_of(double value) {
  const auto narrowed = static_cast<Float>(value);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &narrowed, sizeof narrowed);
  return bits;
}

}  // namespace

void Extras::attach(std::array<LaunchAttribute, 3>& attributes, toolchain::LaunchConfig& config) const {
  config.attributes = attributes.data();
  config.attribute_count = 0;
  const auto add = [&](int id) -> LaunchAttribute& {
    LaunchAttribute& attribute = attributes[config.attribute_count++];
    attribute.id = id;
    return attribute;
  };
  if (cluster[0]) {
    auto& size = add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).value.cluster;
    size.x = cluster[0], size.y = cluster[1], size.z = cluster[2];
  }
  if (pdl) add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION).value.value = 1;
  if (cooperative) add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).value.value = 1;
}

LaunchRecipe::LaunchRecipe(const source::Manifest& manifest, const source::LaunchSpec& spec,
                           std::vector<std::int64_t> known_slots, std::int64_t static_shared_bytes,
                           source::Which which)
    : slots(std::move(known_slots)), known_(slots.size(), true) {
  const source::SlotLayout& layout = manifest.slots;
  std::fill_n(known_.begin() + layout.argument_slot(0), layout.arguments + layout.runtime + layout.run,
              false);
  take_defaults(manifest);
  take_checks(manifest, which);
  take_geometry(layout, spec, static_shared_bytes);
  take_passed(manifest, which);
  take_reads(manifest);
}

Expression LaunchRecipe::folded(const Expression& expression) const {
  return expression.folded(slots, known_);
}

void LaunchRecipe::take_defaults(const source::Manifest& manifest) {
  for (const ArgumentSpec& a : manifest.arguments) {
    const double number = a.float_value.value_or(0);
    defaults.push_back(a.type.kind == Kind::f32   ? bits_of<float>(number)
                       : a.type.kind == Kind::f64 ? bits_of<double>(number)
                                                  : 0);
  }
  for (const int slot : manifest.value_order) {  // a value may read an argument that comes later
    const auto i = static_cast<std::size_t>(slot - manifest.slots.argument_slot(0));
    if (i >= manifest.arguments.size() || !manifest.arguments[i].optional) continue;
    Expression value = folded(manifest.arguments[i].value);
    const auto constant = value.constant_value();
    if (constant && fits(manifest.arguments[i].type.kind, *constant))
      defaults[i] = static_cast<std::uint64_t>(*constant);
    else
      computed.push_back({i, static_cast<std::size_t>(slot), std::move(value)});
  }
}

void LaunchRecipe::take_checks(const source::Manifest& manifest, source::Which which) {
  const auto checked = [&](const Expression& expression) {
    const int first = manifest.slots.export_slot(0), end = manifest.slots.arch_slot();
    return which == source::Which::kernel ||
           std::none_of(expression.reads().begin(), expression.reads().end(),
                        [&](int slot) { return slot >= first && slot < end; });
  };
  for (std::size_t i = 0; i < manifest.arguments.size(); ++i) {
    const ArgumentSpec& a = manifest.arguments[i];
    if (a.type.kind != Kind::pointer || a.align.empty() || !checked(a.align)) continue;
    Expression bytes = folded(a.align);
    const auto constant = bytes.constant_value();
    if (constant && *constant <= 1) continue;
    const bool power = constant && std::has_single_bit(static_cast<std::uint64_t>(*constant));
    const std::uint64_t mask = power ? static_cast<std::uint64_t>(*constant) - 1 : ~std::uint64_t{0};
    alignments.push_back({i, mask, std::move(bytes)});
  }
  for (const source::Requirement& r : manifest.requirements) {
    if (!r.at_launch || !checked(r.expression)) continue;
    Expression expression = folded(r.expression);
    if (expression.constant_value().value_or(0) == 0) requirements.push_back({std::move(expression), &r});
  }
}

void LaunchRecipe::take_geometry(const source::SlotLayout& layout, const source::LaunchSpec& spec,
                                 std::int64_t static_shared_bytes) {
  const auto at = [](int slot) { return static_cast<std::size_t>(slot); };
  block = varying(spec.block, "block", {&Geometry::block_x, &Geometry::block_y, &Geometry::block_z},
                  {1024, 1024, 64});
  if (!spec.smem.empty()) {
    smem = folded(spec.smem);
    const auto bytes = smem.constant_value();
    if (bytes && *bytes >= 0 && *bytes + static_shared_bytes <= slots[at(layout.smem_optin_slot())]) {
      config.shared_bytes = static_cast<unsigned>(*bytes);
      smem = {};
    }
  }
  known_[at(layout.occupancy_slot())] = false;  // occupancy follows from block and smem, which read it as 0
  grid = varying(spec.grid, "grid", {&Geometry::grid_x, &Geometry::grid_y, &Geometry::grid_z},
                 {INT32_MAX, 65535, 65535});
  cluster = varying(spec.cluster, "cluster",
                    {&Geometry::cluster_x, &Geometry::cluster_y, &Geometry::cluster_z}, {16, 16, 16});
  extras.pdl = spec.pdl && slots[at(layout.arch_slot())] >= 90;
  extras.cooperative = spec.cooperative;
  Extras all = extras;
  // Size 1 is no cluster: archs before 9.0 know no attribute for it.
  if (cluster.empty() && config.cluster_blocks() > 1)
    all.cluster = {config.cluster_x, config.cluster_y, config.cluster_z};
  all.attach(attributes_, config);
}

/// Returns the dimensions that depend on the call, and sets the others in `config`. A dimension that can
/// never be right stays, and is refused at the launch.
std::vector<LaunchRecipe::Dimension> LaunchRecipe::varying(const std::vector<Expression>& from,
                                                           const char* name, const Fields& into,
                                                           const Limits& most) {
  std::vector<Dimension> out;
  for (std::size_t i = 0; i < from.size(); ++i) {
    Expression value = folded(from[i]);
    const auto constant = value.constant_value();
    if (constant && *constant >= 0 && *constant <= most[i])
      config.*into[i] = static_cast<unsigned>(*constant);
    else
      out.push_back({std::move(value), into[i], name, i, most[i]});
  }
  return out;
}

namespace {

template <class Fold>
LaunchRecipe::Constant recipe_of(const source::PassedConstant& constant, const Fold& fold) {
  using Kind = source::ArgumentType::Kind;
  LaunchRecipe::Constant out{constant.kind, {}, 0};
  if (constant.kind == Kind::f32) out.bits = bits_of<float>(constant.number);
  if (constant.kind == Kind::f64) out.bits = bits_of<double>(constant.number);
  if (constant.value.empty()) return out;
  out.value = fold(constant.value);
  const auto known = out.value.constant_value();
  if (!known || (is_integer(constant.kind) && !fits(constant.kind, *known))) return out;
  out.bits = out.bits_for(*known);
  out.value = {};
  return out;
}

}  // namespace

void LaunchRecipe::take_passed(const source::Manifest& manifest, source::Which which) {
  if (which == source::Which::kernel)
    for (const source::PassedConstant& constant : manifest.constants)
      constants.push_back(recipe_of(constant, [&](const Expression& e) { return folded(e); }));
  using From = source::PassedArgument::From;
  passed = source::passed_to(manifest, which);
  passes_the_call_ = source::is_the_call(passed, manifest);
  for (std::size_t i = 0; which == source::Which::kernel && i < manifest.tensor_maps.size(); ++i) {
    const int in = manifest.tensor_maps[i].in;
    const bool wanted = std::any_of(passed.begin(), passed.end(), [&](const source::PassedArgument& p) {
      return in < 0 ? p.from == From::tensor_map && p.index == i
                    : p.from == From::call && p.index == static_cast<std::size_t>(in);
    });
    if (!wanted) continue;
    passes_the_call_ = false;
    tensor_maps.emplace_back(manifest, i, slots, [&](const Expression& e) { return folded(e); });
  }
}

std::uint64_t LaunchRecipe::Constant::bits_for(std::int64_t number) const noexcept {
  if (kind == Kind::f32) return bits_of<float>(static_cast<double>(number));
  if (kind == Kind::f64) return bits_of<double>(static_cast<double>(number));
  return static_cast<std::uint64_t>(number);
}

void LaunchRecipe::take_reads(const source::Manifest& manifest) {
  std::vector<bool> read(slots.size(), false);
  const auto note = [&](const Expression& expression) {
    for (const int slot : expression.reads()) read[static_cast<std::size_t>(slot)] = true;
  };
  for (const Alignment& a : alignments) note(a.bytes);
  for (const Requirement& r : requirements) note(r.expression);
  for (const Computed& c : computed) note(c.value);
  for (const auto* dimensions : {&block, &grid, &cluster})
    for (const Dimension& d : *dimensions) note(d.value);
  note(smem);
  for (const TensorMapRecipe& map : tensor_maps)
    for (const TensorMapRecipe::Varying& property : map.varying()) note(property.value);
  for (const Constant& constant : constants) note(constant.value);
  wants_occupancy = read[static_cast<std::size_t>(manifest.slots.occupancy_slot())];
  for (std::size_t i = 0; i < manifest.arguments.size(); ++i) {
    const auto slot = static_cast<std::size_t>(manifest.slots.argument_slot(static_cast<int>(i)));
    if (read[slot]) reads.push_back({i, slot, manifest.arguments[i].type.kind});
  }
}

}  // namespace kiln::runtime

#include "tools/kiln/lint/uses.hpp"

#include <algorithm>

#include "expression/braces.hpp"

namespace kiln::cli {
namespace {

/// Name of the value in a slot; empty for arguments, arch and the device's facts.
std::string name_of_slot(const source::Manifest& m, int slot) {
  const source::SlotLayout& at = m.slots;
  const auto index = [&](int first) { return static_cast<std::size_t>(slot - first); };
  if (slot < at.derive_slot(0)) return m.parameters[index(0)].name;
  if (slot < at.argument_slot(0)) return m.derives[index(at.derive_slot(0))].first;
  if (slot < at.runtime_slot(0)) return {};
  if (slot < at.run_slot(0)) return m.runtime[index(at.runtime_slot(0))].name;
  if (slot < at.export_slot(0)) return {};
  if (slot < at.arch_slot()) return m.exports[index(at.export_slot(0))].name;
  return {};
}

template <class Do>
void each_name(const std::string& text, Do&& act) {
  for (const source::Braces::Piece& piece : source::split_braces(text).pieces)
    if (piece.is_name) act(piece.text);
}

}  // namespace

Uses::Uses(const source::Manifest& manifest) {
  // Collects needs first, because `mark` follows them.
  const auto all = [&](auto&& act) {
    const auto with_entries = [&](const source::Manifest& one) {
      act(one);
      for (const auto& entry : one.entries) act(*entry);
    };
    with_entries(manifest);
    for (const auto& [arch, variant] : manifest.variants) with_entries(*variant);
  };
  all([&](const source::Manifest& one) { needs_of(one); });
  all([&](const source::Manifest& one) { texts_of(one), expressions_of(one); });
}

Reach Uses::of(std::string_view name) const {
  const auto found = reach_.find(name);
  return found == reach_.end() ? Reach::none : found->second;
}

void Uses::needs_of(const source::Manifest& m) {
  const auto add = [&](const std::string& name, const source::Expression& expression, Reach at_most) {
    for (const int slot : expression.reads())
      if (const std::string read = name_of_slot(m, slot); !read.empty())
        needs_.emplace(name, Need{read, at_most});
  };
  for (const auto& [name, expression] : m.derives) add(name, expression, Reach::code);
  for (const source::RuntimeValueSpec& value : m.runtime) add(value.name, value.value, Reach::launch);
  for (const source::ParameterSpec& parameter : m.parameters) {
    add(parameter.name, parameter.default_value, Reach::launch);
    for (const auto& choice : parameter.choices)
      each_name(choice.cpp, [&](const std::string& name) {
        needs_.emplace(parameter.name, Need{name, Reach::code});
      });
  }
}

void Uses::texts_of(const source::Manifest& m) {
  text(m.kernel.instantiate);
  if (m.reference) text(m.reference->instantiate);
  for (const auto& [name, cpp] : m.compile.define) text(cpp);
  for (const source::GlobalSpec& global : m.globals) text(global.symbol);
  for (const source::ExportSpec& value : m.exports) text(value.cpp);
  for (const source::ArgumentSpec& argument : m.arguments) text(argument.fill.instantiate);
}

void Uses::expressions_of(const source::Manifest& m) {
  const auto all = [&](const std::vector<source::Expression>& expressions) {
    for (const source::Expression& expression : expressions) reads(m, expression);
  };
  const auto launch = [&](const source::LaunchSpec& spec) {
    all(spec.grid), all(spec.block), all(spec.cluster), reads(m, spec.smem);
  };
  launch(m.kernel.launch);
  if (m.reference) launch(m.reference->launch);
  for (const source::ArgumentSpec& argument : m.arguments) {
    all(argument.shape), all(argument.stride);
    for (const auto* one :
         {&argument.align, &argument.value, &argument.exists, &argument.fill.low, &argument.fill.high})
      reads(m, *one);
    if (argument.type.dtype_parameter >= 0)
      mark(m.parameters[static_cast<std::size_t>(argument.type.dtype_parameter)].name, Reach::launch);
  }
  for (const source::TensorMapSpec& map : m.tensor_maps) {
    all(map.dims), all(map.strides), all(map.box), all(map.element_strides);
    for (const auto* one : {&map.element, &map.swizzle, &map.l2, &map.interleave, &map.offset})
      reads(m, *one);
  }
  for (const source::PassedConstant& constant : m.constants) reads(m, constant.value);
  for (const source::Requirement& requirement : m.requirements) {
    reads(m, requirement.expression);
    each_name(requirement.message, [&](const std::string& name) { mark(name, Reach::launch); });
  }
  if (m.work_list) {
    for (const auto* values : {&m.work_list->kernel, &m.work_list->run})
      for (const auto& [name, value] : *values) reads(m, value);
  }
  for (const source::RuntimeValueSpec& value : m.run_values) reads(m, value.value);
  for (const auto* cost : {&m.cost_read, &m.cost_write, &m.cost_flops, &m.cost_dtype}) reads(m, *cost);
}

void Uses::text(const std::string& cpp) {
  each_name(cpp, [&](const std::string& name) { mark(name, Reach::code); });
}

void Uses::reads(const source::Manifest& m, const source::Expression& expression) {
  for (const int slot : expression.reads())
    if (const std::string name = name_of_slot(m, slot); !name.empty()) mark(name, Reach::launch);
}

void Uses::mark(const std::string& name, Reach reach) {
  Reach& present = reach_[name];  // starts as Reach::none
  if (present >= reach) return;
  present = reach;
  const auto [first, last] = needs_.equal_range(name);
  for (auto need = first; need != last; ++need)
    mark(need->second.name, std::min(reach, need->second.at_most));
}

}  // namespace kiln::cli

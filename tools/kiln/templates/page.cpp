#include "tools/kiln/templates/page.hpp"
#include "tools/kiln/cli/table.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/text.hpp"
#include "instantiate/instantiate.hpp"
#include "instantiate/plan.hpp"
#include "manifest/parameter_value.hpp"

namespace kiln::cli {

using source::ArgumentSpec;
using source::Expression;
using source::Manifest;
using source::ParameterKind;
using source::ParameterSpec;

namespace {

std::string listed(const std::vector<Expression>& expressions, std::string_view separator) {
  std::string out;
  for (const Expression& e : expressions) out += (out.empty() ? "" : std::string(separator)) + e.text();
  return out;
}

std::size_t indent_of(const std::vector<std::string>& names) {
  std::size_t widest = 6;
  for (const std::string& name : names) widest = std::max(widest, columns_of(name));
  return std::min<std::size_t>(widest, 18) + 4;
}

/// An item: the first paragraph says what it is, and further paragraphs explain it.
void print_item(const std::string& name, const std::vector<std::string>& paragraphs, std::size_t indent) {
  std::string label = name;
  for (const std::string& text : paragraphs) {
    if (text.empty()) continue;
    if (label.empty()) print("");
    print_definition(label, text, indent);
    label.clear();
  }
}

void print_parameters(const Manifest& manifest) {
  if (manifest.parameters.empty()) return;
  print("\n");
  print_heading("Parameters");
  const std::size_t indent = indent_of(parameter_names(manifest));
  for (const ParameterSpec& p : manifest.parameters) {
    std::string tune;
    for (const std::int64_t candidate : p.tune)
      tune += (tune.empty() ? "tuned over: " : " ") + source::parameter_text(p, candidate);
    if (!tune.empty() && manifest.tune_changes_bits) tune += ", which may change bits";
    const std::string first = std::string(to_string(p.kind)) + ": " + cli::allowed_values(p);
    const std::string fallback = p.default_value.empty() ? "" : "default: " + default_text(p);
    print_item(p.name, {first + (fallback.empty() ? ", required" : ""), p.doc, fallback, tune}, indent);
  }
}

/// The value that `kiln run` passes when none is given.
std::string given_text(const ArgumentSpec& a) {
  if (a.float_value) return "value if not given: " + base::decimal(*a.float_value);
  return a.value.empty() ? "" : "value if not given: " + a.value.text();
}

std::string exists_text(const ArgumentSpec& a) {
  if (a.exists.empty()) return {};
  return a.exists.text() == "0" ? "kiln run passes null"
                                : "kiln run passes a buffer if " + a.exists.text() + ", else null";
}

void print_arguments(const Manifest& manifest) {
  if (manifest.arguments.empty() && manifest.runtime.empty()) return;
  print("\n");
  print_heading("Arguments");
  std::vector<std::string> names;
  for (const auto& a : manifest.arguments) names.push_back(a.name);
  for (const auto& r : manifest.runtime) names.push_back(r.name);
  for (const auto& r : manifest.run_values) names.push_back(r.name);
  const std::size_t indent = indent_of(names);
  for (const ArgumentSpec& a : manifest.arguments) {
    std::string first = a.type.to_string(manifest.parameters);
    if (a.type.kind == source::ArgumentType::Kind::pointer)
      first += std::string(", ") + (a.access == source::Access::read    ? "read"
                                    : a.access == source::Access::write ? "written"
                                                                        : "read and written");
    if (!a.shape.empty()) first += ", shape [" + listed(a.shape, ", ") + ']';
    if (!a.stride.empty()) first += ", strides [" + listed(a.stride, ", ") + ']';
    if (!a.align.empty()) first += ", aligned to " + a.align.text();
    if (a.optional) first += ", optional";
    print_item(a.name, {first, a.doc, given_text(a), exists_text(a)}, indent);
  }
  for (const auto& r : manifest.runtime)
    print_item(r.name, {"run-time value, not a kernel argument", r.doc}, indent);
  for (const auto& r : manifest.run_values)
    print_item(r.name, {"value that only kiln run uses", r.doc, "value if not given: " + r.value.text()},
               indent);
}

void print_tensor_maps(const Manifest& manifest) {
  if (manifest.tensor_maps.empty()) return;
  print("\n");
  print_heading("Tensor maps");
  std::vector<std::string> names;
  for (const auto& map : manifest.tensor_maps) names.push_back(map.name);
  const std::size_t indent = indent_of(names);
  for (const auto& map : manifest.tensor_maps)
    print_item(map.name, {source::summary(map, manifest), map.doc}, indent);
}

/// The kernel's arguments, where a call has others.
void print_passed(const Manifest& manifest) {
  std::vector<std::pair<std::string, std::string>> lists{{"kernel", passed_text(manifest)}};
  for (const auto& [arch, variant] : manifest.variants)
    if (std::string text = passed_text(*variant); text != lists.front().second)
      lists.emplace_back(arch.name(), text.empty() ? "the arguments of the call" : std::move(text));
  if (lists.front().second.empty()) lists.erase(lists.begin());
  if (lists.empty()) return;
  print("\n");
  print_heading("The kernel gets");
  for (const auto& [of, text] : lists) print_definition(of, text, 11);
}

void print_work_list(const Manifest& manifest) {
  if (!manifest.work_list) return;
  const source::WorkListSpec& list = *manifest.work_list;
  print("\n");
  print_heading("Work list");
  constexpr std::size_t indent = 15;
  const auto name = [&](int i) { return manifest.arguments[static_cast<std::size_t>(i)].name; };
  print_definition("kind", list.kind, indent);
  print_definition("on", list.on_device ? "device" : "host", indent);
  print_definition("arguments",
                   "the work list in " + name(list.argument) +
                       (list.workspace < 0 ? "" : ", partial results in " + name(list.workspace)) +
                       ", blocks of the grid in " + name(list.workers),
                   indent);
  for (const auto* values : {&list.kernel, &list.run}) {
    for (const auto& [key, expression] : *values) print_definition(key, expression.text(), indent);
  }
}

void print_requirements(const Manifest& manifest) {
  if (manifest.requirements.empty()) return;
  print("\n");
  print_heading("Requirements");
  for (const auto& r : manifest.requirements) {
    print_definition(r.at_launch ? "launch" : "compile", r.expression.text(), 11);
  }
}

void print_launch(const source::LaunchSpec& launch) {
  print("\n");
  print_heading("Launch");
  print_definition("grid", listed(launch.grid, " x "), 11);
  print_definition("block", listed(launch.block, " x "), 11);
  if (!launch.cluster.empty()) print_definition("cluster", listed(launch.cluster, " x "), 11);
  if (!launch.smem.empty()) print_definition("smem", launch.smem.text() + " bytes", 11);
  if (launch.pdl)
    print_definition("pdl", "overlaps the end of the kernel before it (programmatic dependent launch)", 11);
  if (launch.cooperative) print_definition("cooperative", "all blocks resident at once", 16);
}

void print_symbols(const Manifest& manifest) {
  if (!manifest.globals.empty()) print("\n"), print_heading("Globals");
  for (const auto& g : manifest.globals)
    print_definition(g.name, g.symbol + (g.doc.empty() ? "" : ": " + g.doc), 13);
  if (!manifest.exports.empty()) print("\n"), print_heading("Exports");
  for (const auto& e : manifest.exports) print_definition(e.name, e.cpp, 13);
  if (!manifest.variants.empty()) print("\n"), print_heading("Overrides");
  for (const auto& [arch, variant] : manifest.variants)
    print_definition(arch.name(), variant->kernel.source + ": " + variant->kernel.instantiate, 13);
}

}  // namespace

std::string allowed_values(const ParameterSpec& p) {
  if (p.kind == ParameterKind::boolean) return "false true";
  if (p.range) return std::to_string(p.range->first) + ".." + std::to_string(p.range->second);
  std::string out;
  for (const auto& choice : p.choices) out += (out.empty() ? "" : " ") + choice.name;
  return out.empty() ? "any" : out;
}

std::string short_parameters(const Manifest& manifest) {
  std::vector<std::string> required, optional;
  for (const ParameterSpec& p : manifest.parameters)
    (p.default_value.empty() ? required : optional).push_back(p.name);
  std::string out = base::join(required, " ");
  if (!optional.empty()) out += (out.empty() ? "[" : " [") + base::join(optional, " ") + ']';
  return out;
}

std::string supported_archs(const Manifest& manifest) {
  std::string only;
  for (const base::Arch& arch : manifest.arch_only) only += (only.empty() ? "" : " ") + arch.name();
  if (!only.empty()) return only;
  return manifest.arch_min ? manifest.arch_min->name() + " and later" : "any";
}

namespace {

void print_operators(const Manifest& manifest) {
  if (manifest.binds.empty()) return;
  print("\n");
  print_heading("Operators");
  for (const source::BindSpec& bind : manifest.binds) {
    print_definition("", bind.name + '(' + bind.call + ')' + (bind.out.empty() ? "" : " -> " + bind.out), 2);
    if (bind.doc != manifest.summary) print_definition("", bind.doc, 4);
  }
}

}  // namespace

void print_page(const source::Template& origin) {
  const Manifest& manifest = origin.manifest;
  print(paint(manifest.name, Style::bold, standard_output()) + '\n');
  if (!manifest.summary.empty()) print_definition("", manifest.summary, 2);
  if (!manifest.formula.empty()) print("\n"), print_definition("", manifest.formula, 2);
  if (!manifest.fallback.empty()) print("\n"), print_definition("", "falls back to " + manifest.fallback, 2);
  print("\n");
  print_definition("arch", supported_archs(manifest), 13);
  print_definition("features", std::string(to_string(manifest.features)), 13);
  print_definition("kernel", manifest.kernel.instantiate, 13);
  print_definition("source", origin.kernel.path.empty() ? "memory" : origin.kernel.path, 13);
  print_definition("reference", manifest.reference ? manifest.reference->instantiate : "none", 13);
  print_definition("prewarm", counted(source::shipped_plan(manifest).size(), "specialisation"), 13);
  if (manifest.family) print_definition("family", source::summary(*manifest.family, manifest), 13);
  print_parameters(manifest);
  if (!manifest.derives.empty()) {
    print("\n");
    print_heading("Derived");
    std::vector<std::string> names;
    for (const auto& derive : manifest.derives) names.push_back(derive.first);
    for (const auto& [name, expression] : manifest.derives)
      print_definition(name, expression.text(), indent_of(names));
  }
  print_arguments(manifest);
  print_tensor_maps(manifest);
  print_passed(manifest);
  print_requirements(manifest);
  print_launch(manifest.kernel.launch);
  print_work_list(manifest);
  for (const auto& entry : manifest.entries) {
    print("\n" + paint("Kernel " + entry->entry, Style::bold, standard_output()) + '\n');
    print_definition("kernel", entry->kernel.instantiate, 13);
    print_arguments(*entry);
    print_tensor_maps(*entry);
    print_passed(*entry);
    print_requirements(*entry);
    print_launch(entry->kernel.launch);
  }
  print_operators(manifest);
  print_symbols(manifest);
}

}  // namespace kiln::cli

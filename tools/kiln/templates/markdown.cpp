#include "tools/kiln/templates/markdown.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/text.hpp"
#include "instantiate/plan.hpp"
#include "manifest/parameter_value.hpp"
#include "tools/kiln/cli/markdown_table.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/templates/page.hpp"

namespace kiln::cli {

using source::ArgumentSpec;
using source::Expression;
using source::Manifest;
using source::ParameterSpec;

namespace {

constexpr const char* kHead = R"(# The shipped templates

Look up here the parameters, arguments and limits of each shipped template.
`kiln templates NAME` prints the same facts in a terminal.
[Writing a template](../guide/write-a-template.md) explains how to make one.
`kiln templates --markdown > docs/reference/templates.md` makes this page from the manifests.
Change a manifest to change the page.

- A **parameter** is compiled in. An **argument** is given with each launch.
- **value** is what `kiln run` passes when the command line does not say otherwise. An optional argument that is left out has this value, too.
- Shapes and strides are in elements. A tensor without strides is contiguous.
- `{NAME}` in a message stands for a value.
- Expressions are those of C, with [some more functions](manifest.md#expressions).

)";

/// "4e-06"
std::string in_powers_of_ten(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::scientific).ptr};
}

/// "`a` x `b`"
std::string codes(const std::vector<Expression>& expressions, std::string_view separator) {
  std::vector<std::string> out;
  for (const Expression& e : expressions) out.push_back(code(e.text()));
  return base::join(out, separator);
}

std::string parameters(const Manifest& manifest) {
  if (manifest.parameters.empty()) return {};
  MarkdownTable table({"parameter", "kind", "allowed", "default", "tuned over", "what it is"});
  for (const ParameterSpec& p : manifest.parameters) {
    std::vector<std::string> tune;
    for (const std::int64_t candidate : p.tune) tune.push_back(source::parameter_text(p, candidate));
    table.add({code(p.name), std::string(to_string(p.kind)), cli::allowed_values(p),
               p.default_value.empty() ? "required" : code(default_text(p)), base::join(tune, " "),
               prose(p.doc)});
  }
  const bool tuned = std::any_of(manifest.parameters.begin(), manifest.parameters.end(),
                                 [](const ParameterSpec& p) { return !p.tune.empty(); });
  return "\n" + table.text() +
         (!tuned                       ? ""
          : manifest.tune_changes_bits ? "\nCandidates of `kiln tune` may differ in their last bits.\n"
                                       : "\nCandidates of `kiln tune` give the same bits.\n");
}

std::string derives(const Manifest& manifest) {
  std::vector<std::string> out;
  for (const auto& [name, expression] : manifest.derives)
    out.push_back(code(name) + " = " + code(expression.text()));
  return out.empty() ? "" : "\nDerived from them: " + base::join(out, "; ") + ".\n";
}

/// The value that `kiln run` passes when none is given, or that an omitted optional argument gets.
std::string value_of(const ArgumentSpec& a) {
  if (a.float_value) return code(base::decimal(*a.float_value));
  if (!a.value.empty()) return code(a.value.text());
  if (a.exists.empty()) return {};
  return a.exists.text() == "0" ? "null" : "if " + code(a.exists.text()) + ", else null";
}

std::string arguments(const Manifest& manifest) {
  if (manifest.arguments.empty() && manifest.runtime.empty()) return {};
  constexpr const char* access[] = {"read", "written", "read and written"};
  MarkdownTable table(
      {"argument", "type", "access", "shape", "stride", "aligned to", "optional", "value", "what it is"});
  for (const ArgumentSpec& a : manifest.arguments) {
    const bool pointer = a.type.kind == source::ArgumentType::Kind::pointer;
    table.add({code(a.name), code(a.type.to_string(manifest.parameters)),
               pointer ? access[static_cast<int>(a.access)] : "", codes(a.shape, ", "), codes(a.stride, ", "),
               a.align.empty() ? "" : code(a.align.text()), a.optional ? "yes" : "", value_of(a),
               prose(a.doc)});
  }
  for (const auto& r : manifest.runtime) {
    table.add({code(r.name), "run-time value", "", "", "", "", "",
               r.value.empty() ? "" : code(r.value.text()), prose(r.doc)});
  }
  for (const auto& r : manifest.run_values)
    table.add(
        {code(r.name), "a value of `kiln run` only", "", "", "", "", "", code(r.value.text()), prose(r.doc)});
  return "\n" + table.text();
}

std::string tensor_maps(const Manifest& manifest) {
  if (manifest.tensor_maps.empty()) return {};
  MarkdownTable table({"tensor map", "of", "what it is"});
  for (const source::TensorMapSpec& map : manifest.tensor_maps)
    table.add({code(map.name), prose(source::summary(map, manifest)), prose(map.doc)});
  return "\n" + table.text();
}

std::string passed(const Manifest& manifest) {
  const std::string text = passed_text(manifest);
  return text.empty() ? text : "- The kernel gets " + code(text) + ".\n";
}

std::string work_list(const Manifest& manifest) {
  if (!manifest.work_list) return {};
  const source::WorkListSpec& p = *manifest.work_list;
  const auto name = [&](int i) { return code(manifest.arguments[static_cast<std::size_t>(i)].name); };
  std::vector<std::string> values;
  for (const auto& [key, expression] : p.kernel)
    values.push_back(code(key) + " = " + code(expression.text()));
  return "- Work list of kind " + p.kind +
         (p.on_device ? ", made on the host before the launch, or on the device: it lies in "
                      : ", made on the host before the launch: it lies in ") +
         name(p.argument) + (p.workspace < 0 ? "" : ", its partial results in " + name(p.workspace)) +
         ", for " + name(p.workers) + " blocks; " + base::join(values, ", ") + ".\n";
}

std::string family(const Manifest& manifest) {
  if (!manifest.family) return {};
  const source::FamilySpec& f = *manifest.family;
  std::string edges;
  for (const std::int64_t edge : f.edges.all()) edges += (edges.empty() ? "" : ", ") + std::to_string(edge);
  return "- Family: " + code(manifest.arguments[static_cast<std::size_t>(f.by)].name) +
         " of each launch picks the member, whose " +
         code(manifest.parameters[static_cast<std::size_t>(f.parameter)].name) + " is the first of " + edges +
         " that is not below it; the last member also serves everything above.\n";
}

std::string constraints(const Manifest& manifest) {
  if (manifest.requirements.empty()) return {};
  MarkdownTable table({"checked before", "must hold", "or else"});
  for (const auto& r : manifest.requirements)
    table.add({r.at_launch ? "each launch" : "compiling", code(r.expression.text()), prose(r.message)});
  return "\n" + table.text();
}

std::string launch(const source::LaunchSpec& l) {
  std::string out = "- Launch: grid " + codes(l.grid, " x ") + ", block " + codes(l.block, " x ");
  if (!l.cluster.empty()) out += ", cluster " + codes(l.cluster, " x ");
  if (!l.smem.empty()) out += ", " + code(l.smem.text()) + " bytes of dynamic shared memory";
  if (l.pdl) out += "; programmatic dependent launch";
  if (l.cooperative) out += "; cooperative: all blocks are resident at once";
  return out + ".\n";
}

std::string cost(const Manifest& manifest) {
  if (manifest.cost_read.empty() && manifest.cost_write.empty()) return {};
  std::vector<std::string> out;
  if (!manifest.cost_read.empty()) out.push_back("reads " + code(manifest.cost_read.text()) + " bytes");
  if (!manifest.cost_write.empty()) out.push_back("writes " + code(manifest.cost_write.text()) + " bytes");
  if (!manifest.cost_flops.empty()) out.push_back(code(manifest.cost_flops.text()) + " operations");
  return "- Cost of a launch: " + base::join(out, ", ") + ".\n";
}

std::string tolerance(const Manifest& manifest) {
  std::vector<std::string> out;
  for (const auto& [dtype, limit] : manifest.tolerance)
    out.push_back(std::string(to_string(dtype)) + ' ' + in_powers_of_ten(limit));
  const std::string others = "other types and integers exact";
  return manifest.reference ? "- Tolerance, relative RMS against the reference in double: " +
                                  (out.empty() ? others : base::join(out, ", ") + "; " + others) + ".\n"
                            : "";
}

std::string limits(const source::Limits& l) {
  std::vector<std::string> out;
  if (l.max_spill_bytes)
    out.push_back(counted(static_cast<std::uint64_t>(*l.max_spill_bytes), "spilled byte"));
  if (l.performance_warnings)
    out.push_back(counted(static_cast<std::uint64_t>(*l.performance_warnings), "performance warning") +
                  " of ptxas");
  if (l.compile_seconds) out.push_back(std::to_string(*l.compile_seconds) + " s to compile");
  if (l.compile_memory)
    out.push_back(human_bytes(static_cast<std::uint64_t>(*l.compile_memory)) + " to compile");
  return out.empty() ? "" : "- Limits: at most " + base::join(out, ", ") + ".\n";
}

/// "T=bf16,f16 H=2048,4096" as in the row.
std::string row_text(const source::PrewarmRow& row) {
  std::vector<std::string> out;
  for (const auto& [name, values] : row.values) out.push_back(name + '=' + base::join(values, ","));
  if (!row.archs.empty()) out.push_back("arch=" + base::join(row.archs, ","));
  return base::join(out, " ");
}

std::string shipped(const Manifest& manifest) {
  if (manifest.prewarm.empty()) return {};
  std::vector<std::string> rows;
  for (const source::PrewarmRow& row : manifest.prewarm) rows.push_back(code(row_text(row)));
  return "- Ships warm, " + counted(source::shipped_plan(manifest).size(), "specialisation") + ": " +
         base::join(rows, "; ") + ".\n";
}

std::string overrides(const Manifest& manifest) {
  std::string out;
  for (const auto& [arch, variant] : manifest.variants)
    out += "- On " + arch.name() + ": " + code(variant->kernel.instantiate) + " of " +
           code(variant->kernel.source) +
           (passed_text(*variant) == passed_text(manifest)
                ? ""
                : ", which gets " + (passed_text(*variant).empty() ? "the arguments of the call"
                                                                   : code(passed_text(*variant)))) +
           ".\n";
  return out;
}

/// A command that runs the first shipped specialisation.
std::string example(const Manifest& manifest) {
  const auto plan = source::shipped_plan(manifest);
  if (plan.empty() || !manifest.reference) return {};
  return "\n    kiln run " + manifest.name + ' ' + text_of(plan.front().values) + " --check --bench\n";
}

std::string operators(const Manifest& manifest) {
  std::string out;
  for (const source::BindSpec& bind : manifest.binds) {
    out += out.empty() ? "\nOperators:\n\n" : "";
    out += "- " + code(bind.name + '(' + bind.call + ')' + (bind.out.empty() ? "" : " -> " + bind.out));
    out += bind.doc == manifest.summary ? "\n" : ": " + prose(bind.doc) + ".\n";
  }
  return out;
}

}  // namespace

std::string markdown_section(const source::Template& origin) {
  const Manifest& m = origin.manifest;
  std::string out = "## " + m.name + '\n';
  if (!m.summary.empty()) out += '\n' + prose(m.summary) + ".\n";
  if (!m.formula.empty()) out += "\n    " + m.formula + '\n';
  out += "\nRuns on " + supported_archs(m) + ". Name expression: " + code(m.kernel.instantiate) + '.';
  if (!m.fallback.empty()) out += " Falls back to " + code(m.fallback) + '.';
  out += '\n' + example(m) + parameters(m) + derives(m) + arguments(m) + tensor_maps(m) + constraints(m) +
         '\n' + launch(m.kernel.launch) + passed(m) + work_list(m) + family(m) + overrides(m) + cost(m) +
         tolerance(m) + limits(m.limits) + shipped(m) + operators(m);
  for (const auto& entry : m.entries) {
    out += "\n### " + m.name + ", kernel " + entry->entry +
           "\n\nName expression: " + code(entry->kernel.instantiate) + ".\n" + arguments(*entry) +
           tensor_maps(*entry) + constraints(*entry) + '\n' + launch(entry->kernel.launch);
  }
  return out;
}

std::string markdown_page(const std::vector<std::shared_ptr<const source::Template>>& templates) {
  std::string out = kHead;
  MarkdownTable contents({"template", "parameters", "what it does"});
  for (const auto& origin : templates) {
    const Manifest& m = origin->manifest;
    contents.add({'[' + m.name + "](#" + m.name + ')', prose(short_parameters(m)), prose(m.summary)});
  }
  out += contents.text();
  for (const auto& origin : templates) out += '\n' + markdown_section(*origin);
  return out;
}

}  // namespace kiln::cli

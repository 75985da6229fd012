#include "tools/kiln/lint/manifest.hpp"
#include "tools/kiln/lint/lines.hpp"

#include <map>
#include <set>

#include "base/text.hpp"
#include "expression/braces.hpp"
#include "instantiate/plan.hpp"
#include "instantiate/tune.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/lint/uses.hpp"

namespace kiln::cli {
namespace {

using source::Manifest;
using source::ParameterKind;

class Lint {
 public:
  Lint(const Manifest& manifest, const ManifestLines& lines)
      : manifest_(manifest), lines_(lines), uses_(manifest) {}

  LintFindings run() {
    unused();
    defines(manifest_);
    for (const auto& [arch, variant] : manifest_.variants) defines(*variant);
    shapes(manifest_);
    for (const auto& entry : manifest_.entries) shapes(*entry);
    docs();
    strict_candidates();
    if (!manifest_.internal) left_out();
    return std::move(out_);
  }

 private:
  void add(const char* id, Severity severity, std::string place, std::string text) {
    const auto said = [&](const LintFinding& f) { return f.id == id && f.text == text; };
    if (std::none_of(out_.begin(), out_.end(), said))
      out_.push_back({id, severity, manifest_.name, std::move(place), std::move(text)});
  }

  void unused() {
    for (const source::ParameterSpec& p : manifest_.parameters) {
      const Reach reach = uses_.of(p.name);
      if (reach == Reach::code || picks_member(p, reach)) continue;
      const std::string place = lines_.of({"param", p.name});
      if (reach == Reach::none)
        add("unused-parameter", Severity::warning, place,
            "nothing reads parameter '" + p.name +
                "', but each of its values makes an entry of its own: write {" + p.name +
                "} into instantiate, or remove it");
      else
        add("unused-parameter", Severity::note, place,
            "parameter '" + p.name +
                "' is in no C++ text: only geometry, arguments, defaults, requirements or cost read it, so "
                "each of its values makes another entry with the same code; with an argument or a value of "
                "[runtime], all of them would share one entry");
    }
    for (const auto& [name, expression] : manifest_.derives)
      if (uses_.of(name) == Reach::none)
        add("unused-derive", Severity::warning, lines_.of({"derive", name}),
            "nothing reads derive '" + name + "': remove it");
    for (const source::ExportSpec& value : manifest_.exports)
      if (uses_.of(value.name) == Reach::none)
        add("unused-export", Severity::note, lines_.of({"export", value.name}),
            "no expression reads export '" + value.name +
                "', but each export makes the compile longer: remove it unless 'kiln show' or an engine "
                "needs "
                "it");
    unused_tensor_maps();
    unused_runtime(manifest_);
    for (const auto& entry : manifest_.entries) unused_runtime(*entry);
  }
  /// True for the parameter of [family] when its members differ: expressions read it, or each member is tuned alone.
  bool picks_member(const source::ParameterSpec& p, Reach reach) const {
    if (!manifest_.family ||
        &p != &manifest_.parameters[static_cast<std::size_t>(manifest_.family->parameter)])
      return false;
    const auto is_tuned = [](const source::ParameterSpec& other) { return !other.tune.empty(); };
    return reach != Reach::none ||
           std::any_of(manifest_.parameters.begin(), manifest_.parameters.end(), is_tuned);
  }
  /// A map that no arch passes, of this entry point or another.
  void unused_tensor_maps() {
    std::vector<const Manifest*> all{&manifest_};
    for (const auto& [arch, variant] : manifest_.variants) all.push_back(variant.get());
    std::set<std::string> passed, declared;
    for (const Manifest* of : all) {
      std::vector<const Manifest*> entries{of};
      for (const auto& entry : of->entries) entries.push_back(entry.get());
      for (const Manifest* m : entries) {
        for (const source::PassedArgument& one : m->passed) passed.insert(passed_name(*m, one));
        for (const source::TensorMapSpec& map : m->tensor_maps) {
          declared.insert(map.name);
          if (map.in >= 0 && passed.contains(m->arguments[static_cast<std::size_t>(map.in)].name))
            passed.insert(map.name);
        }
      }
    }
    for (const std::string& name : declared)
      if (!passed.contains(name))
        add("unused-tensormap", Severity::warning, lines_.of({"tensormap"}),
            "no kernel gets tensor map '" + name + "': name it in arguments of [template], or remove it");
  }
  void unused_runtime(const Manifest& m) {
    for (const source::RuntimeValueSpec& value : m.runtime)
      if (uses_.of(value.name) == Reach::none)
        add("unused-runtime", Severity::warning, lines_.of({"runtime", value.name}),
            "nothing reads the run-time value '" + value.name +
                "', but every launch must pass it: remove it");
  }

  void defines(const Manifest& m) {
    for (const auto& [macro, text] : m.compile.define) {
      for (const source::Braces::Piece& piece : source::split_braces(text).pieces) {
        if (!piece.is_name) continue;
        const int parameter = parameter_index(m, piece.text);
        if (parameter >= 0 &&
            m.parameters[static_cast<std::size_t>(parameter)].kind != ParameterKind::integer)
          continue;
        add("shape-in-define", Severity::warning, lines_.of({"compile", "define", macro}),
            "macro " + macro + " holds the integer {" + piece.text +
                "}: use a template parameter, because each value of a macro is another source to the "
                "compiler, "
                "and a precompiled header serves only one of them; if you cannot change the source, use "
                "--allow shape-in-define");
      }
    }
  }

  void shapes(const Manifest& m) {
    if (manifest_.internal) return;
    for (const source::ArgumentSpec& argument : m.arguments) {
      if (argument.type.kind != source::ArgumentType::Kind::pointer || !argument.shape.empty()) continue;
      const bool list =
          m.work_list && argument.name == m.arguments[static_cast<std::size_t>(m.work_list->argument)].name;
      if (list && m.work_list->has_run) continue;
      add("no-shape", Severity::warning, lines_.argument(argument.name),
          list ? "'kiln run' cannot make the work list '" + argument.name +
                     "': add [work_list.run], with the batch that it is made for"
               : "pointer '" + argument.name +
                     "' has no shape, so 'kiln run' cannot make its data: add shape = [...]");
    }
  }

  void docs() {
    std::vector<std::string> silent;
    for (const source::ParameterSpec& p : manifest_.parameters)
      if (p.doc.empty()) silent.push_back(p.name);
    const auto arguments = [&](const Manifest& m) {
      for (const source::ArgumentSpec& argument : m.arguments)
        if (argument.doc.empty()) silent.push_back(argument.name);
      for (const source::TensorMapSpec& map : m.tensor_maps)
        if (map.doc.empty()) silent.push_back(map.name);
    };
    arguments(manifest_);
    for (const auto& entry : manifest_.entries) arguments(*entry);
    if (!silent.empty())
      add("no-doc", Severity::note, lines_.of({}),
          "no doc, which 'kiln templates' shows; add doc to " + base::join(silent, ", "));
    if (manifest_.summary.empty())
      add("no-summary", Severity::note, lines_.of({"template"}),
          "no summary, which 'kiln templates' lists: add one line to [template]");
  }

  /// Reports `tune` candidates that every [[prewarm]] row refuses because they accept fewer calls
  /// than the default.
  void strict_candidates() {
    std::map<std::pair<std::string, std::string>, std::string> refused;  // parameter and value -> why
    std::set<std::pair<std::string, std::string>> taken;
    for (const source::PlannedSpecialization& row : source::shipped_plan(manifest_)) {
      const base::Arch arch = base::Arch::parse(row.arch.empty() ? "sm_90a" : row.arch);
      std::vector<NamedValue> named;
      for (const Parameter& p : row.values) named.push_back({p.name, Value(p.value)});
      try {
        const source::Candidates found =
            source::tune_candidates(manifest_, source::positional(manifest_, named), arch);
        for (const source::Candidate& candidate : found.all)
          for (const Parameter& p : candidate.chosen) taken.emplace(p.name, p.value);
        for (const auto& [candidate, why] : found.refused)
          if (const auto equals = candidate.find('=');
              why.starts_with("stricter") && candidate.find(' ') == std::string::npos)
            refused.emplace(std::pair(candidate.substr(0, equals), candidate.substr(equals + 1)), why);
      } catch (const Error&) {  // the template does not support the row's arch
      }
    }
    for (const auto& [candidate, why] : refused)
      if (!taken.contains(candidate))
        add("strict-candidate", Severity::warning, lines_.of({"param", candidate.first}),
            "no [[prewarm]] row accepts " + candidate.first + '=' + candidate.second + " of `tune`: " + why);
  }

  void left_out() {
    if (!manifest_.reference)
      add("no-reference", Severity::note, lines_.of({"template"}),
          "no [reference], so 'kiln run --check' cannot check the results: add a naive kernel");
    else if (manifest_.tolerance.empty())
      add("no-tolerance", Severity::note, lines_.of({"reference"}),
          "a [reference] without tolerance: 'kiln run --check' expects equal results; add [template] "
          "tolerance");
    if (manifest_.prewarm.empty())
      add("no-prewarm", Severity::note, lines_.of({}),
          "no [[prewarm]] row: 'kiln prewarm' skips this template, and the first request waits for a "
          "compile");
    if (manifest_.cost_read.empty() && manifest_.cost_write.empty() && manifest_.cost_flops.empty())
      add("no-cost", Severity::note, lines_.of({}),
          "no [cost], so 'kiln run' cannot say how near to the roofline it is");
    const source::Limits& l = manifest_.limits;
    if (!l.max_spill_bytes && !l.performance_warnings && !l.compile_seconds && !l.compile_memory)
      add("no-limits", Severity::note, lines_.of({}),
          "no [limits]: a compile that begins to spill is not noticed; add max_spill_bytes");
  }

  const Manifest& manifest_;
  const ManifestLines& lines_;
  const Uses uses_;
  LintFindings out_;
};

}  // namespace

LintFindings lint_manifest(const Manifest& manifest, const ManifestLines& lines) {
  return Lint(manifest, lines).run();
}

}  // namespace kiln::cli

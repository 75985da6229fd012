#include "manifest/read/parse.hpp"

#include <algorithm>
#include <array>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "expression/braces.hpp"
#include "kiln/error.hpp"
#include "manifest/bind/reader.hpp"
#include "manifest/family/reader.hpp"
#include "manifest/read/arguments.hpp"
#include "manifest/read/compile_options.hpp"
#include "manifest/read/image.hpp"
#include "manifest/read/launch.hpp"
#include "manifest/read/names.hpp"
#include "manifest/read/order.hpp"
#include "manifest/read/parameters.hpp"
#include "manifest/read/prewarm.hpp"
#include "manifest/read/tensor_maps.hpp"
#include "manifest/read/trees.hpp"
#include "manifest/read/work_list.hpp"

namespace kiln::source {
namespace {

void read_arch(Draft& draft, const TableReader& reader) {
  const TomlValue* found = reader.find("arch");
  if (!found) return;
  const TableReader arch(*found, "[template] arch", reader.file(), {"min", "only", "features"});
  if (arch.has("only") ? arch.has("min") : !arch.has("min") && !arch.has("features"))
    reader.fail(
        "arch",
        "expected { min = \"sm_80\" } or { only = [\"sm_90a\"] }; features = \"base\" may stand beside min");
  if (arch.has("features")) {
    constexpr std::array all{base::Features::base, base::Features::family, base::Features::exact};
    const std::string text = *arch.text("features");
    const auto named =
        std::find_if(all.begin(), all.end(), [&](base::Features one) { return to_string(one) == text; });
    if (named == all.end()) arch.fail("features", base::quote(text) + " is not one of: base family exact");
    if (arch.has("only"))
      arch.fail("features", "belongs to min; the archs of only say it themselves, such as sm_100f");
    draft.out.features = *named;
  }
  const auto parse = [&](std::string_view key, const std::string& text) {
    try {
      return base::Arch::parse(text);
    } catch (const Error& error) {
      arch.fail(key, error.what());
    }
  };
  if (arch.has("min")) draft.out.arch_min = parse("min", *arch.text("min"));
  for (const std::string& text : arch.lines("only")) draft.out.arch_only.push_back(parse("only", text));
  if (arch.has("only") && draft.out.arch_only.empty()) arch.fail("only", "must not be empty");
}

void read_tolerance(Draft& draft, const TableReader& reader) {
  const TomlValue* found = reader.find("tolerance");
  if (!found) return;
  const TableReader tolerance(*found, "[template] tolerance", reader.file());
  for (const auto& [name, value] : found->members) {
    const auto dtype = dtype_from(name);
    if (!dtype) {
      const std::vector<std::string> known(std::begin(kDtypeNames), std::end(kDtypeNames));
      tolerance.fail(name,
                     "is no dtype" + base::did_you_mean(name, known) + "; known: " + base::join(known, " "));
    }
    const bool number = value.kind == TomlValue::Kind::real || value.kind == TomlValue::Kind::integer;
    const double limit =
        value.kind == TomlValue::Kind::integer ? static_cast<double>(value.integer) : value.real;
    if (!number || !(limit >= 0)) tolerance.fail_wanted(name, value, "a number that is not negative");
    draft.out.tolerance.emplace_back(*dtype, limit);
  }
}

void read_limits(Draft& draft, const TableReader& root) {
  const TomlValue* found = root.find("limits");
  if (!found) return;
  const TableReader reader(*found, "[limits]", root.file(),
                           {"max_spill_bytes", "performance_warnings", "compile_seconds", "compile_memory"});
  draft.out.limits = {reader.count("max_spill_bytes"), reader.count("performance_warnings"),
                      reader.count("compile_seconds"), reader.count("compile_memory")};
}

}  // namespace

void read_template(Draft& draft, const TableReader& root) {
  const TableReader reader(root.need("template"), "[template]", root.file(),
                           {"name", "source", "instantiate", "summary", "formula", "arch", "tolerance",
                            "internal", "fallback", "tune_changes_bits", "arguments"});
  Manifest& out = draft.out;
  out.name = reader.need_line("name");
  if (!base::is_identifier(out.name))
    reader.fail("name", base::quote(out.name) + " must be [A-Za-z_][A-Za-z0-9_]*");
  out.kernel.source = inner_path(reader, "source");
  reader.need_line("instantiate");  // its {P} are read when the parameters are known
  out.summary = reader.text_or("summary", "");
  out.formula = reader.text_or("formula", "");
  out.internal = reader.boolean_or("internal", false);
  out.tune_changes_bits = reader.boolean_or("tune_changes_bits", false);
  out.fallback = reader.text_or("fallback", "");
  if (reader.has("fallback") && (!base::is_identifier(out.fallback) || out.fallback == out.name))
    reader.fail("fallback", base::quote(out.fallback) + " must be the name of another template");
  read_arch(draft, reader);
  read_tolerance(draft, reader);
}

void take_name(Draft& draft, const TableReader& reader, std::string_view key, const std::string& name,
               const char* what) {
  if (!base::is_identifier(name))
    reader.fail(key, std::string(what) + ' ' + base::quote(name) + " must be named [A-Za-z_][A-Za-z0-9_]*");
  if (is_reserved_name(name))
    reader.fail(key, base::quote(name) +
                         " is a dtype, a function or another word of expressions, and cannot name " + what);
  if (!draft.taken.insert(name).second) {
    reader.fail(
        key,
        "two of the parameters, derives, arguments, tensor maps, run-time values and exports are called " +
            base::quote(name));
  }
}

void check_cpp(const Draft& draft, const TableReader& reader, std::string_view key, const std::string& text) {
  const Braces braces = split_braces(text);
  if (!braces.problem.empty()) reader.fail(key, base::quote(text) + ' ' + braces.problem);
  const auto& derives = draft.out.derives;
  for (const Braces::Piece& piece : braces.pieces) {
    const auto is_it = [&](const auto& derive) { return derive.first == piece.text; };
    if (!piece.is_name || parameter_index(draft.out, piece.text) >= 0 ||
        std::any_of(derives.begin(), derives.end(), is_it))
      continue;
    std::vector<std::string> known = parameter_names(draft.out);
    for (const auto& [name, expression] : derives) known.push_back(name);
    reader.fail(key, "{" + piece.text + "} is no parameter or derive" +
                         base::did_you_mean(piece.text, known) + "; known: " + base::join(known, " "));
  }
}

std::string name_expression(const Draft& draft, const TableReader& reader, std::string_view key) {
  std::string text = reader.need_line(key);
  check_cpp(draft, reader, key, text);
  return text;
}

Manifest parse_tree(const TomlValue& tree, const std::string& file, WorkListKinds work_lists) {
  const TableReader root(tree, "", file);
  Draft draft;
  draft.out.file = file;
  read_template(draft, root);
  read_compile(draft, root);
  find_work_list(draft, root, work_lists);
  lay_out_slots(draft, root);
  read_parameters(draft, root);
  declare_arguments(draft, root);
  declare_tensor_maps(draft, root);
  declare_work_list(draft, root);
  declare_exports(draft, root);
  make_symbols(draft, root);
  read_defaults(draft, root);
  check_spellings(draft, root);
  read_arguments(draft, root);
  read_tensor_maps(draft, root);
  read_passed(draft, root);
  read_work_list(draft, root);
  read_family(draft, root);
  read_requirements(draft, root);
  read_launch(draft, root);
  read_exports(draft, root);
  read_globals(draft, root);
  read_binds(draft, root);
  read_limits(draft, root);
  read_prewarm(draft, root);
  return std::move(draft.out);
}

namespace {

Manifest parse_all_entries(TomlValue tree, const std::string& file, WorkListKinds work_lists) {
  const auto entries = split_entries(std::move(tree), file);
  Manifest out = parse_tree(entries.front().second, file, work_lists);
  out.entry = entries.front().first;
  for (std::size_t i = 1; i < entries.size(); ++i) {
    auto other = std::make_shared<Manifest>(parse_tree(entries[i].second, file, work_lists));
    other->entry = entries[i].first;
    out.entries.push_back(std::move(other));
  }
  return out;
}

/// A manifest may name what it uses of the grammar beyond the first version of format 1.
void check_needs(const TableReader& root) {
  const std::vector<std::string> known{"bind", "features", "tensormap", "family", "device_work_list"};
  for (const std::string& name : root.lines("needs"))
    if (std::find(known.begin(), known.end(), name) == known.end())
      root.fail("needs",
                "the template needs " + base::quote(name) +
                    ", which this version of kiln does not know; it knows: " + base::join(known, " "));
}

/// Allows only the archs of variants, because there is nothing to run on any other arch.
void run_on_variants_alone(Manifest& out, const TableReader& root) {
  std::vector<base::Arch> archs;
  for (const auto& [arch, variant] : out.variants) archs.push_back(arch);
  for (const base::Arch arch : out.arch_only) {
    if (std::find(archs.begin(), archs.end(), arch) != archs.end()) continue;
    root.fail("template", "arch allows " + arch.name() +
                              ", for which there is no source: neither [template] nor [arch." + arch.name() +
                              "] names one");
  }
  out.arch_min.reset();  // every override was checked against it
  out.arch_only = std::move(archs);
}

}  // namespace

Manifest parse_manifest(std::string_view toml, const std::string& file, WorkListKinds work_lists) {
  TomlValue tree = parse_toml(toml, file);
  add_default_sources(tree);
  const TableReader root(
      tree, "", file,
      {"format",    "needs",     "template",  "compile", "param",   "derive", "require", "arg",
       "tensormap", "runtime",   "work_list", "plan",    "bind",    "launch", "kernel",  "global",
       "export",    "reference", "cost",      "limits",  "prewarm", "arch",   "family"});
  const TomlValue& format = root.need("format");
  if (format.kind != TomlValue::Kind::integer) root.fail_wanted("format", format, "an integer");
  if (format.integer != kManifestFormat) {
    root.fail("format", std::to_string(format.integer) + " is unknown; this version of kiln reads format " +
                            std::to_string(kManifestFormat));
  }
  check_needs(root);
  // Without [arch.*] the tree is moved, because `root` is then no longer needed.
  ArchTrees trees = split_archs(root.has("arch") ? tree : std::move(tree), file);
  Manifest out = parse_all_entries(std::move(trees.base), file, work_lists);
  for (auto& [arch, variant] : trees.variants) {
    if (!supports(out, arch)) {
      root.fail("arch",
                arch.name() +
                    " is overridden, but [template] arch does not allow it, so the override is never used");
    }
    out.variants.emplace_back(
        arch, std::make_shared<Manifest>(parse_all_entries(std::move(variant), file, work_lists)));
  }
  if (trees.base_is_variant) run_on_variants_alone(out, root);
  return out;
}

}  // namespace kiln::source

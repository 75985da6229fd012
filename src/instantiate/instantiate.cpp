#include "instantiate/instantiate.hpp"

#include <algorithm>
#include <cstdint>

#include "base/quote.hpp"
#include "expression/braces.hpp"
#include "kiln/error.hpp"
#include "manifest/parameter_value.hpp"

namespace kiln::source {
namespace {

std::vector<std::string> compile_options(const CompileSpec& compile) {
  std::vector<std::string> out = {"-std=" + compile.std};
  if (compile.ndebug) out.push_back("-DNDEBUG");
  if (compile.default_device) out.push_back("-default-device");
  if (compile.minimal) out.push_back("--minimal");
  for (const auto& [name, text] : compile.define) out.push_back("-D" + name + '=' + text);
  out.insert(out.end(), compile.options.begin(), compile.options.end());
  for (const std::string& name : compile.preinclude) out.push_back("--pre-include=" + name);
  return out;
}

/// Limits a text because values that name each other twice double its length with each step.
constexpr std::size_t kMaxText = 64 << 10;

/// C++ texts of one manifest, filled with the values of one specialisation. A value's own text may name other
/// parameters; the parser has checked that there is no cycle.
class Speller {
 public:
  Speller(const Manifest& manifest, const std::vector<std::int64_t>& slots)
      : manifest_(manifest), slots_(slots) {}

  std::string operator()(const std::string& text) const {
    std::string out = fill_braces(text, [&](const std::string& name) {
      const int slot = slot_index(manifest_, name);
      if (slot < 0)
        throw Error(Errc::internal,
                    "a C++ text of " + base::quote(manifest_.name) + " has unknown {" + name + '}');
      const auto i = static_cast<std::size_t>(slot);
      return i < manifest_.parameters.size() ? (*this)(parameter_cpp(manifest_.parameters[i], slots_[i]))
                                             : integer_cpp(slots_[i]);
    });
    if (out.size() <= kMaxText) return out;
    throw Error(Errc::source, "a C++ text of template " + base::quote(manifest_.name) + " has more than " +
                                  std::to_string(kMaxText) + " characters once its {P} are filled in");
  }
  template <class Items, class TextOf>
  std::vector<NamedText> all(const Items& items, TextOf&& text_of) const {
    std::vector<NamedText> out;
    for (const auto& item : items) out.push_back({item.name, (*this)(text_of(item))});
    return out;
  }

 private:
  const Manifest& manifest_;
  const std::vector<std::int64_t>& slots_;
};

/// Adds the headers that the chosen values' C++ texts need, each once.
void add_headers_of_values(const Manifest& manifest, const std::vector<std::int64_t>& slots,
                           std::vector<std::string>& preinclude) {
  const auto add = [&](const std::string& header) {
    if (!header.empty() && std::find(preinclude.begin(), preinclude.end(), header) == preinclude.end())
      preinclude.push_back(header);
  };
  for (std::size_t i = 0; i < manifest.parameters.size(); ++i) {
    const ParameterSpec& spec = manifest.parameters[i];
    for (const std::string& header : spec.includes) add(header);
    for (const ParameterSpec::Choice& choice : spec.choices) {
      if (choice.value == slots[i]) add(choice.include);
    }
  }
}

}  // namespace

Instantiation instantiate(std::shared_ptr<const Template> origin, Resolved resolved, Which which) {
  const Manifest& manifest = variant_for(origin->manifest, resolved.arch);
  if (which == Which::reference && !manifest.reference) {
    throw Error(Errc::source, "template " + base::quote(manifest.name) + " has no [reference]");
  }
  const bool kernel = which == Which::kernel;
  const EntryPoint& entry = kernel ? manifest.kernel : *manifest.reference;
  Instantiation out;
  out.which = which;
  out.unit = manifest.name + (kernel ? "" : "@reference");
  const Speller spell(manifest, resolved.slots);
  out.name_expression = spell(entry.instantiate);
  if (kernel) {
    for (const auto& other : manifest.entries)
      out.entries.push_back({other->entry, spell(other->kernel.instantiate)});
    out.globals = spell.all(manifest.globals, [](const GlobalSpec& g) { return g.symbol; });
    out.exports = spell.all(manifest.exports, [](const ExportSpec& e) { return e.cpp; });
  }
  out.compile = manifest.compile;
  for (auto& [name, text] : out.compile.define) text = spell(text);
  add_headers_of_values(manifest, resolved.slots, out.compile.preinclude);
  out.options = compile_options(out.compile);
  out.source_name = entry.source;
  out.source = origin->text_of(entry.source).read();
  out.resolved = std::move(resolved);
  out.origin = std::move(origin);
  return out;
}

Instantiation with_entry_point(Instantiation unit, const std::string& text) {
  unit.name_expression = Speller(unit.manifest(), unit.resolved.slots)(text);
  unit.entries.clear(), unit.globals.clear(), unit.exports.clear();
  return unit;
}

std::vector<PassedArgument> passed_to(const Manifest& manifest, Which which) {
  if (which == Which::kernel) return manifest.passed;
  std::vector<PassedArgument> out;
  for (std::size_t i = 0; i < manifest.arguments.size(); ++i) out.push_back({PassedArgument::From::call, i});
  return out;
}

std::string export_symbol(std::size_t i) { return "kiln_export_" + std::to_string(i); }

std::string Instantiation::epilogue() const {
  if (exports.empty()) return {};
  // The value passes through a template argument, which must be an integer constant that fits: an initialiser
  // would only warn of a fraction. The names are unlikely to be macros of the source.
  std::string out =
      "\n#line 1 \"[export]\"\ntemplate <long long kiln_given> struct kiln_exported { static constexpr long "
      "long kiln_constant = kiln_given; };\n";
  for (std::size_t i = 0; i < exports.size(); ++i) {
    out += "#line 1 \"[export] " + exports[i].name + "\"\nextern \"C\" __constant__ long long " +
           export_symbol(i) + " = kiln_exported<(" + exports[i].cpp + ")>::kiln_constant;\n";
  }
  return out;
}

std::vector<std::string> Instantiation::name_expressions() const {
  std::vector<std::string> out = {name_expression};
  for (const NamedText& other : entries) out.push_back(other.cpp);
  for (const NamedText& global : globals) out.push_back('&' + global.cpp);
  return out;
}

}  // namespace kiln::source

#include "tools/kiln/lint/compile.hpp"
#include "tools/kiln/lint/lines.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "instantiate/instantiate.hpp"
#include "instantiate/plan.hpp"
#include "manifest/parameter_value.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/lint/claim.hpp"
#include "tools/kiln/lint/image.hpp"

namespace kiln::cli {
namespace {

using source::Manifest;

struct Choice {
  std::vector<Parameter> values;
  std::string arch;  ///< empty: any
  std::string place;
};

/// The specialisation to compile. Nothing when there is no row and a parameter has no
/// default, unless `forced`.
std::optional<Choice> choose(const Manifest& manifest, LintCompile mode, const ManifestLines& lines) {
  if (!manifest.prewarm.empty()) {
    const source::PrewarmRow& row = manifest.prewarm.front();
    Choice out{
        {}, row.archs.empty() ? "" : row.archs.front(), manifest.file + ':' + std::to_string(row.line)};
    for (const auto& [name, texts] : row.values) out.values.push_back({name, texts.front()});
    return out;
  }
  Choice out{{}, "", lines.of({"template", "instantiate"})};
  for (const source::ParameterSpec& p : manifest.parameters) {
    if (!p.default_value.empty()) continue;
    if (mode != LintCompile::forced) return std::nullopt;
    const std::int64_t first = !p.choices.empty() ? p.choices.front().value : p.range ? p.range->first : 1;
    out.values.push_back({p.name, source::parameter_text(p, first)});
  }
  return out;
}

base::Arch arch_for(Context& context, const Manifest& manifest, const Choice& choice) {
  if (!context.arch.empty()) return context.target_arch();
  if (!choice.arch.empty()) return base::Arch::parse(choice.arch);
  const base::Arch usual = context.target_arch();
  if (source::supports(manifest, usual)) return usual;
  return manifest.arch_only.empty() ? *manifest.arch_min : manifest.arch_only.front();
}

class CompileOne {
 public:
  CompileOne(Context& context, std::shared_ptr<const source::Template> origin,
             const std::vector<std::string>& foreign, const ManifestLines& lines)
      : context_(context), origin_(std::move(origin)), foreign_(foreign), lines_(lines) {}

  CompileLint run(LintCompile mode) {
    const Manifest& manifest = origin_->manifest;
    const auto choice = choose(manifest, mode, lines_);
    if (!choice) {
      add("not-compiled", Severity::note, lines_.of({}),
          "not compiled: no [[prewarm]] row, and not every parameter has a default; --compile takes the "
          "first value of each");
      return std::move(out_);
    }
    place_ = choice->place;
    try {
      const base::Arch arch = arch_for(context_, manifest, *choice);
      if (!source::supports(manifest, arch)) {
        add("not-compiled", Severity::note, lines_.of({"template", "arch"}),
            "not compiled: the template does not support " + arch.name());
        return std::move(out_);
      }
      std::vector<NamedValue> named;
      for (const Parameter& p : choice->values) named.push_back({p.name, Value(std::string_view(p.value))});
      const std::vector<Value> values = source::positional(manifest, named);
      kernel(source::resolve(manifest, values, arch));
      if (variant_for(manifest, arch).reference)
        reference(source::resolve(manifest, values, arch, source::Archs::any));
      take(lint_claim(context_, origin_,
                      mode == LintCompile::forced ? RowValues::all : RowValues::each_value));
    } catch (const Error& error) {
      if (error.code() == Errc::no_compiler)
        add("not-compiled", Severity::note, place_, "not compiled: " + std::string(error.what()));
      else
        add("compile", Severity::error, place_, brief_of(error));
    }
    return std::move(out_);
  }

 private:
  void add(const char* id, Severity severity, std::string place, std::string text) {
    out_.findings.push_back({id, severity, origin_->manifest.name, std::move(place), std::move(text)});
  }
  void take(LintFindings more) {
    out_.findings.insert(out_.findings.end(), std::make_move_iterator(more.begin()),
                         std::make_move_iterator(more.end()));
  }
  runtime::Obtained image_of(const source::Instantiation& unit) {
    runtime::ObtainOptions options;
    options.arguments = runtime::Arguments::any;  // wrong arguments are reported as a finding
    return context_.service().core().path().obtain(unit, options);
  }

  void kernel(const source::Resolved& resolved) {
    const source::Instantiation unit = source::instantiate(origin_, resolved);
    runtime::Core& core = context_.service().core();
    const runtime::Obtained got = image_of(unit);
    out_.compiled = true;
    const runtime::Explanation explanation = core.path().explain(unit, {});
    const std::string never = got.unpublishable.empty() ? explanation.unpublishable : got.unpublishable;
    if (!never.empty())
      add("unpublishable", Severity::warning, lines_.of({"template", "source"}),
          "never cached, so every process compiles it: " + never);
    if (explanation.computed_include)
      add("computed-include", Severity::note, lines_.of({"template", "source"}),
          "a project file includes what a macro names: the kernel is cached only when its key covers the "
          "file "
          "that was read; name such files in [compile] extra_includes");
    take(lint_image(unit.manifest(), resolved, got.image->facts, got.image->bytes, foreign_, lines_));
  }

  void reference(source::Resolved resolved) {
    const source::Instantiation unit =
        source::instantiate(origin_, std::move(resolved), source::Which::reference);
    place_ = lines_.of({"reference", "source"});
    try {
      context_.service().core().path().obtain(unit, {});
    } catch (const Error& error) {
      if (error.code() != Errc::manifest) throw;
      add("argument-layout", Severity::error, place_,
          std::string(error.what()) + "; a reference must take the kernel's arguments");
    }
  }

  Context& context_;
  const std::shared_ptr<const source::Template> origin_;
  const std::vector<std::string>& foreign_;
  const ManifestLines& lines_;
  std::string place_;
  CompileLint out_;
};

}  // namespace

CompileLint lint_compile(Context& context, const std::shared_ptr<const source::Template>& origin,
                         const std::vector<std::string>& foreign, LintCompile mode,
                         const ManifestLines& lines) {
  return CompileOne(context, origin, foreign, lines).run(mode);
}

}  // namespace kiln::cli

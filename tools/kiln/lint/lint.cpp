// kiln lint: reports wrong, unused and missing parts of manifests, and problems that a compile of each shows.
#include "tools/kiln/lint/lint.hpp"
#include "tools/kiln/cli/catalog.hpp"
#include "tools/kiln/cli/table.hpp"
#include "tools/kiln/lint/lines.hpp"

#include <filesystem>

#include "base/file.hpp"
#include "base/text.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/lint/compile.hpp"
#include "tools/kiln/lint/files.hpp"

namespace kiln::cli {
namespace {

struct Arguments {
  std::vector<std::string> names, allow;
  bool compile = false, no_compile = false, strict = false;

  LintCompile mode() const {
    return no_compile ? LintCompile::off : compile ? LintCompile::forced : LintCompile::automatic;
  }
};

struct Linted {
  LintFindings findings;
  std::size_t templates = 0, compiled = 0, allowed = 0;
};

constexpr std::string_view kSeverities[] = {"note", "warning", "error"};
std::string_view name_of(Severity severity) noexcept { return kSeverities[static_cast<int>(severity)]; }

/// True when the directory is a family folder of a template path directory. Its templates include
/// from that directory.
bool is_family(const source::Catalog& usual, const std::string& directory) {
  std::error_code error;
  const auto parent = std::filesystem::weakly_canonical(directory, error).parent_path();
  return std::any_of(usual.directories().begin(), usual.directories().end(), [&](const std::string& root) {
    return std::filesystem::equivalent(root, parent, error);
  });
}

/// The catalogs in which words name templates: the template path's, or one for a manifest's own directory.
class Chosen {
 public:
  explicit Chosen(Context& context) : context_(context) {}

  std::vector<std::pair<std::string, source::Catalog*>> of(const std::vector<std::string>& words) {
    std::vector<std::pair<std::string, source::Catalog*>> out;
    source::Catalog& usual = context_.service().catalog();
    for (const std::string& word : words) {
      if (word.find('/') == std::string::npos && !word.ends_with(".toml")) {
        out.emplace_back(word, &usual);
        continue;
      }
      const std::filesystem::path path(word);
      if (!base::FileStamp::of(word) || path.extension() != ".toml")
        throw Error(Errc::invalid_argument,
                    "'" + word + "' is no manifest: expected a template's name or the path of a NAME.toml");
      const std::string directory = path.has_parent_path() ? path.parent_path().string() : ".";
      if (is_family(usual, directory)) {
        out.emplace_back(path.stem().string(), &usual);
        continue;
      }
      beside_.push_back(std::unique_ptr<source::Catalog>(new source::Catalog(catalog_of({directory}))));
      out.emplace_back(path.stem().string(), beside_.back().get());
    }
    if (words.empty())
      for (const std::string& name : usual.names()) out.emplace_back(name, &usual);
    return out;
  }

 private:
  Context& context_;
  std::vector<std::unique_ptr<source::Catalog>> beside_;
};

/// A finding "FILE:LINE: text" from a manifest's error.
LintFinding of_error(const std::string& name, const Error& error) {
  std::string text = error.what(), place;
  if (const std::size_t end = text.find(": "); end != std::string::npos && text.starts_with('/'))
    place = text.substr(0, end), text.erase(0, end + 2);
  return {"manifest", Severity::error, name, place, text};
}

std::vector<std::string> toolkit_headers(Context& context) {
  try {
    return context.service().core().state().files.toolkit().include_dirs;
  } catch (const Error&) {  // without a toolkit, its headers are not looked for
    return {};
  }
}

void lint_one(Context& context, const std::string& name, source::Catalog& catalog, LintCompile mode,
              Linted& out) {
  ++out.templates;
  std::shared_ptr<const source::Template> origin;
  try {
    origin = catalog.open(name);
  } catch (const Error& error) {
    if (error.code() == Errc::unknown_template) throw;
    out.findings.push_back(of_error(name, error));
    return;
  }
  const std::string& file = origin->manifest.file;
  const auto content = base::read_file(file);
  const source::TomlValue tree = content ? source::parse_toml(content->bytes, file) : source::TomlValue();
  const ManifestLines lines(tree, file);
  const HeaderPlaces places = header_places(*origin, context.service().config(), toolkit_headers(context));
  LintFindings files = lint_files(*origin, places, lines);
  LintFindings manifest = lint_manifest(origin->manifest, lines);
  const bool complete = files.empty();
  const auto take = [&](LintFindings& from) {
    out.findings.insert(out.findings.end(), std::make_move_iterator(from.begin()),
                        std::make_move_iterator(from.end()));
  };
  take(files), take(manifest);
  if (mode == LintCompile::off || !complete) return;
  CompileLint compiled = lint_compile(context, origin, foreign_headers(*origin, places), mode, lines);
  out.compiled += compiled.compiled;
  take(compiled.findings);
}

void print_finding(const LintFinding& finding, const Terminal& terminal) {
  constexpr Style styles[] = {Style::cyan, Style::yellow, Style::red};
  constexpr std::size_t indent = 9;
  const std::string severity(name_of(finding.severity));
  print(paint(severity, styles[static_cast<int>(finding.severity)], terminal) +
        std::string(indent - severity.size(), ' ') + paint(finding.id, Style::bold, terminal) + "  " +
        (finding.place.empty() ? finding.template_name : finding.place) + '\n');
  const std::size_t width = terminal.width > indent + 24 ? terminal.width - indent : terminal.width ? 24 : 0;
  for (const std::string& line : wrapped(finding.text, width))
    print_foreign(std::string(indent, ' ') + line + '\n');
}

int exit_of(const Linted& linted, bool strict) {
  if (count(linted.findings, Severity::error) > 0) return kFailed;
  if (count(linted.findings, Severity::warning) > 0) return strict ? kFailed : kPartly;
  return kDone;
}

Json json_of(const Context& context, const Linted& linted) {
  Json out{{"schema", context.schema()},
           {"templates", linted.templates},
           {"compiled", linted.compiled},
           {"errors", count(linted.findings, Severity::error)},
           {"warnings", count(linted.findings, Severity::warning)},
           {"notes", count(linted.findings, Severity::note)},
           {"allowed", linted.allowed},
           {"findings", Json::array()}};
  for (const LintFinding& f : linted.findings)
    out["findings"].push_back({{"id", f.id},
                               {"severity", name_of(f.severity)},
                               {"template", f.template_name},
                               {"place", f.place.empty() ? Json(nullptr) : Json(f.place)},
                               {"text", f.text}});
  return out;
}

void check_ids(const std::vector<std::string>& ids) {
  const std::vector<std::string> known(kLintIds.begin(), kLintIds.end());
  for (const std::string& id : ids)
    if (std::find(known.begin(), known.end(), id) == known.end())
      throw Error(Errc::invalid_argument, "--allow " + id + ": there is no finding of this name" +
                                              base::did_you_mean(id, known) +
                                              "; there are: " + base::join(known, " "));
}

int lint(Context& context, const Arguments& arguments) {
  check_ids(arguments.allow);
  Chosen chosen(context);
  Linted out;
  const Terminal terminal = standard_output();
  for (const auto& [name, catalog] : chosen.of(arguments.names)) {
    const std::size_t before = out.findings.size();
    lint_one(context, name, *catalog, arguments.mode(), out);
    out.allowed += std::erase_if(out.findings, [&](const LintFinding& f) {
      return std::find(arguments.allow.begin(), arguments.allow.end(), f.id) != arguments.allow.end();
    });
    for (std::size_t i = before; !context.json && i < out.findings.size(); ++i)
      print_finding(out.findings[i], terminal);
  }
  context.service().core().path().flush();
  if (context.json) {
    print_json(json_of(context, out));
  } else {
    const auto said = [&](Severity severity) {
      return counted(count(out.findings, severity), name_of(severity));
    };
    print_paragraph(counted(out.templates, "template") + ", " + std::to_string(out.compiled) + " compiled: " +
                    said(Severity::error) + ", " + said(Severity::warning) + ", " + said(Severity::note) +
                    (out.allowed > 0 ? " (" + std::to_string(out.allowed) + " allowed)" : ""));
  }
  return exit_of(out, arguments.strict);
}

}  // namespace

void add_lint(Command app, Context& context) {
  const auto arguments = std::make_shared<Arguments>();
  const Command sub = context.add_command(app, "lint", "Check manifests and templates",
                                          [&context, arguments] { return lint(context, *arguments); });
  sub.option("template", arguments->names, "Templates, or paths of their manifests; default: all")
      .type_name("NAME|FILE");
  const Option compile = sub.flag(
      "--compile", arguments->compile,
      "Compile every template and all combinations of the rows' values; parameters without a default "
      "take their first value");
  sub.flag("--no-compile", arguments->no_compile, "Compile nothing").excludes(compile);
  sub.flag("--strict", arguments->strict, "Treat warnings as errors");
  sub.option("--allow", arguments->allow, "Do not report findings of this kind; may be repeated")
      .type_name("ID")
      .allow_extra_args(false);
  sub.footer(
      "One specialisation of each template is compiled, through the cache: the first of its first "
      "[[prewarm]]\n"
      "row, else its defaults. A template that claims features \"base\" or \"family\" is also compiled for "
      "the\n"
      "oldest target of each major version that it allows (sm_80, sm_90a, sm_100_base, sm_120_base): each "
      "row\n"
      "so often that each value of a list occurs, and with --compile in all combinations. A row that names\n"
      "archs is compiled for these archs. The findings name unused entries of the manifest, arguments and "
      "blocks that\n"
      "do not match the kernel, bytes of the image that are not code, and parts that are missing.\n"
      "Exit status: 0 notes at most, 1 errors (with --strict also warnings), 2 usage, 3 warnings.");
}

}  // namespace kiln::cli

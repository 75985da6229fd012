#include "tools/kiln/lint/files.hpp"
#include "tools/kiln/lint/lines.hpp"

#include <filesystem>
#include <set>

#include "base/file.hpp"
#include "closure/include_scan.hpp"

namespace kiln::cli {
namespace {

std::string first_with(const std::vector<std::string>& directories, const std::string& name) {
  for (const std::string& directory : directories)
    if (std::string path = directory + '/' + name; base::FileStamp::of(path)) return path;
  return {};
}

class FileLint {
 public:
  FileLint(const source::Template& origin, const HeaderPlaces& places, const ManifestLines& lines)
      : origin_(origin), places_(places), lines_(lines) {}

  LintFindings run() {
    manifest(origin_.manifest);
    for (const auto& [arch, variant] : origin_.manifest.variants) manifest(*variant);
    return std::move(out_);
  }

 private:
  void add(std::string place, std::string text) {
    const auto said = [&](const LintFinding& f) { return f.text == text; };
    if (std::none_of(out_.begin(), out_.end(), said))
      out_.push_back(
          {"missing-file", Severity::error, origin_.manifest.name, std::move(place), std::move(text)});
  }

  void manifest(const source::Manifest& m) {
    source(m.kernel.source, lines_.of({"template", "source"}));
    if (m.reference) source(m.reference->source, lines_.of({"reference", "source"}));
    for (const std::string& name : m.compile.include_dirs) {
      std::error_code ignored;
      if (!std::filesystem::is_directory(origin_.directory + '/' + name, ignored))
        add(lines_.of({"compile", "include_dirs"}),
            "include_dirs: '" + name + "' is no directory beside the manifest: correct or remove it");
    }
    for (const std::string& name : m.compile.preinclude)
      header(name, "preinclude", lines_.of({"compile", "preinclude"}));
    for (const auto& [replaced, name] : m.compile.replace)
      header(name, "replace of '" + replaced + "'", lines_.of({"compile", "replace", replaced}));
    for (const source::ParameterSpec& p : m.parameters) {
      const std::string place = lines_.of({"param", p.name});
      for (const std::string& name : p.includes) header(name, "include of parameter '" + p.name + "'", place);
      for (const auto& choice : p.choices)
        if (!choice.include.empty())
          header(choice.include, "include of " + p.name + " = " + choice.name, place);
    }
  }
  void source(const std::string& name, std::string place) {
    if (!base::FileStamp::of(origin_.directory + '/' + name))
      add(std::move(place), "source '" + name + "' is no file in '" + origin_.directory +
                                "': correct the name, relative to the manifest");
  }
  void header(const std::string& name, const std::string& what, std::string place) {
    if (places_.toolkit.empty() || !places_.find(name).empty())
      return;  // without a toolkit, the header may
               // belong to it
    add(std::move(place), what + ": '" + name +
                              "' is neither beside the manifest, nor in include_dirs, KILN_INCLUDE_PATH, "
                              "kiln's templates or the toolkit: correct the name, or add its directory to "
                              "include_dirs");
  }

  const source::Template& origin_;
  const HeaderPlaces& places_;
  const ManifestLines& lines_;
  LintFindings out_;
};

}  // namespace

std::string HeaderPlaces::find(const std::string& name) const {
  std::string path = find_in_project(name);
  return path.empty() ? first_with(toolkit, name) : path;
}

std::string HeaderPlaces::find_in_project(const std::string& name) const { return first_with(project, name); }

HeaderPlaces header_places(const source::Template& origin, const runtime::Config& config,
                           std::vector<std::string> toolkit) {
  HeaderPlaces out;
  out.toolkit = std::move(toolkit);
  out.project.push_back(origin.root);
  bool shims = false;
  const auto add = [&](const source::CompileSpec& compile) {
    for (const std::string& directory : compile.include_dirs)
      out.project.push_back(origin.directory + '/' + directory);
    shims = shims || compile.host_headers == source::HostHeaders::shim;
  };
  add(origin.manifest.compile);
  for (const auto& [arch, variant] : origin.manifest.variants) add(variant->compile);
  for (std::string& directory : config.include_directories()) out.project.push_back(std::move(directory));
  if (const std::string& installed = config.installed_templates(); !installed.empty()) {
    out.project.push_back(installed);
    if (shims) out.project.push_back(installed + "/shim");
  }
  return out;
}

LintFindings lint_files(const source::Template& origin, const HeaderPlaces& places,
                        const ManifestLines& lines) {
  return FileLint(origin, places, lines).run();
}

std::vector<std::string> foreign_headers(const source::Template& origin, const HeaderPlaces& places) {
  std::vector<std::string> out, waiting = {origin.kernel.path};
  std::set<std::string> seen;
  while (!waiting.empty()) {
    const std::string path = waiting.back();
    waiting.pop_back();
    const auto content = base::read_file(path, std::size_t{64} << 20);
    if (!content || !seen.insert(path).second) continue;
    const std::string beside = path.substr(0, path.rfind('/') + 1);
    for (const source::IncludeDirective& include : source::scan_includes(content->bytes).directives) {
      std::string found = include.quoted && base::FileStamp::of(beside + include.name)
                              ? beside + include.name
                              : places.find_in_project(include.name);
      if (!found.empty()) {
        waiting.push_back(std::move(found));
      } else if (!first_with(places.toolkit, include.name).empty()) {
        const std::string name = '<' + include.name + '>';
        if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
      }
    }
  }
  return out;
}

}  // namespace kiln::cli

#include "runtime/state/files.hpp"

#include <unistd.h>

#include <filesystem>

#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "kiln/error.hpp"

namespace kiln::runtime {
namespace {

/// Warns of missing headers of kiln. A template that includes "kiln/vector.cuh" does not
/// compile without them.
void warn_of_own_headers(const source::Closure& closure, const Config& config) {
  if (!config.installed_templates().empty()) return;
  for (const std::string& spelling : closure.missing) {
    if (spelling.compare(1, 5, "kiln/") == 0)
      base::warn_once("own headers",
                      "no file was found for #include " + spelling + "; " + config.about_templates());
  }
}

/// All text that may include a header: what [compile] define puts in front of the source, the source, and the
/// manifest's texts that become code.
std::string scanned_text(const source::Instantiation& unit) {
  std::string text;
  for (const auto& [name, value] : unit.compile.define) text += "#define " + name + ' ' + value + '\n';
  text += unit.source;
  text += unit.epilogue();
  for (const std::string& name : unit.name_expressions()) text += '\n' + name;
  return text;
}

}  // namespace

std::string default_memo_file() { return "/dev/shm/kiln-" + std::to_string(::geteuid()) + ".headers"; }

const toolchain::Toolkit& Files::toolkit() {
  return toolkit_.get([&] {
    return toolchain::locate_toolkit({config_.get("cuda_home"), !config_.hermetic()});
  });
}

/// A directory of kiln's own stand-ins for host headers. `key` is the line of the manifest that asks for it.
std::string Files::own_headers(const std::string& folder, const std::string& key) const {
  std::string directory = config_.installed_templates() + '/' + folder;
  std::error_code error;
  if (config_.installed_templates().empty() || !std::filesystem::is_directory(directory, error)) {
    throw Error(Errc::source,
                key + " needs the headers that come with kiln's templates, and " +
                    (config_.installed_templates().empty()
                         ? config_.about_templates()
                         : "'" + directory + "' is not a directory: install all of kiln's templates"));
  }
  return directory;
}

source::SearchPath Files::search_path(const source::Instantiation& unit) {
  const source::Template& origin = *unit.origin;
  source::SearchPath out;
  if (!origin.directory.empty()) {
    // The compiler does not know where the source lies.
    const std::string beside = base::directory_of(unit.source_name);
    if (beside != ".") out.project.push_back(origin.directory + '/' + beside);
    out.project.push_back(origin.root);
  }
  for (const std::string& directory : unit.compile.include_dirs)
    out.project.push_back(origin.directory + '/' + directory);
  for (std::string& directory : config_.include_directories()) out.project.push_back(std::move(directory));
  if (!config_.installed_templates().empty()) out.own.push_back(config_.installed_templates());
  if (unit.compile.host_headers == source::HostHeaders::shim)
    out.own.push_back(own_headers("shim", "host_headers = \"shim\""));
  if (unit.compile.cut_host_code) out.own.push_back(own_headers("stubs", "host_code = \"cut\""));
  out.project.insert(out.project.end(), out.own.begin(), out.own.end());
  out.toolkit = toolkit().include_dirs;
  out.replace = unit.compile.replace;
  return out;
}

KeyedFiles Files::read(const source::Instantiation& unit, source::Trust trust) {
  const source::SearchPath search = search_path(unit);
  std::vector<std::string> extra = unit.compile.preinclude;
  extra.insert(extra.end(), unit.compile.extra_includes.begin(), unit.compile.extra_includes.end());
  KeyedFiles out{base::digest_of(unit.source),
                 source::scan_closure(scanned_text(unit), extra, search, scans_, trust),
                 {}};
  warn_of_own_headers(out.closure, config_);
  out.made = compile::make_key(unit, out.closure, toolkit());
  scans_.save();
  return out;
}

}  // namespace kiln::runtime

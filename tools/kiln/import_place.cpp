#include "import_place.hpp"

#include <filesystem>

#include "base/text.hpp"
#include "source/quote.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;
using source::quote;

/// Without symlinks as far as it exists: relative paths are made of it.
fs::path real(const std::string& path) {
  std::error_code error;
  fs::path out = fs::weakly_canonical(fs::absolute(path, error), error);
  if (error) out = fs::absolute(path, error).lexically_normal();
  return out;
}

std::string path_from(const fs::path& path, const fs::path& from) {
  const std::string out = path.lexically_relative(from).generic_string();
  return out.empty() ? "." : out;
}

std::vector<std::string> paths_from(const std::vector<std::string>& directories, const fs::path& from) {
  std::vector<std::string> out;
  for (const std::string& directory : directories) out.push_back(path_from(real(directory), from));
  return out;
}

void refuse_existing(const std::string& path, bool force) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return;
  if (!fs::is_regular_file(path, error))
    throw Error(Errc::io, quote(path, 4096) + " is there, and is no file");
  if (!force)
    throw Error(Errc::io,
                quote(path, 4096) + " is there already: --force overwrites it, -o and --name choose another");
}

/// The source as `directory` reaches it: by its name when it lies below, else by a file that includes it.
void reach(ImportSite& site, const fs::path& file, const fs::path& directory, const std::string& name) {
  const std::string below = path_from(file, directory);
  if (!below.starts_with("..")) {
    site.place.source = below;
    return;
  }
  site.place.source = name + ".cu";
  if (file.filename() == site.place.source) site.place.source = name + ".import.cu";  // or it includes itself
  site.includer = (directory / site.place.source).string();
  site.includer_text = "#include <" + file.filename().string() + ">\n";
  site.include_dirs.insert(site.include_dirs.begin(), path_from(file.parent_path(), directory));
}

}  // namespace

std::string template_name(const ImportAsked& asked, const std::string& kernel) {
  std::string stem;
  if (!asked.output.empty()) {
    const fs::path output(asked.output);
    if (output.extension() != ".toml")
      throw Error(Errc::invalid_argument, "-o " + quote(asked.output) + " must be a file NAME.toml");
    stem = output.stem().string();
  }
  const std::string name = !asked.name.empty() ? asked.name : !stem.empty() ? stem : kernel;
  if (!base::is_identifier(name))
    throw Error(Errc::invalid_argument, "the template's name " + quote(name) +
                                            " must be [A-Za-z_][A-Za-z0-9_]*; choose it with --name");
  if (!stem.empty() && stem != name) {
    throw Error(Errc::invalid_argument, "--name " + quote(name) + " and -o " + quote(asked.output) +
                                            " disagree: the manifest of a template is called NAME.toml");
  }
  return name;
}

ImportSite site_of(const ImportAsked& asked, const std::string& name) {
  ImportSite out;
  const fs::path file = real(asked.file);
  // A symlink at -o itself is not followed: it would lead into a directory that nobody named.
  const fs::path beside = fs::path(asked.output).parent_path();
  fs::path directory =
      asked.output.empty() ? file.parent_path() : real(beside.empty() ? "." : beside.string());
  out.shown.directory = directory.string();
  out.shown.source = path_from(file, directory);
  out.shown.origin = out.place.origin = file.filename().string();
  out.shown_include_dirs = paths_from(asked.include_dirs, directory);
  if (asked.print) {
    out.scratch = std::make_unique<base::TempDir>("kiln-import");
    directory = real(out.scratch->path());
  } else {
    std::error_code error;
    if (!fs::is_directory(directory, error))
      throw Error(Errc::io,
                  quote(directory.string(), 4096) + " is no directory: the manifest cannot be written there");
    refuse_existing((directory / (name + ".toml")).string(), asked.force);
  }
  out.place.directory = directory.string();
  out.manifest = (directory / (name + ".toml")).string();
  out.include_dirs = paths_from(asked.include_dirs, directory);
  reach(out, file, directory, name);
  if (!out.includer.empty() && !asked.print) refuse_existing(out.includer, asked.force);
  return out;
}

}  // namespace kiln::cli

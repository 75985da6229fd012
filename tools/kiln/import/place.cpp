#include "tools/kiln/import/place.hpp"

#include <algorithm>
#include <filesystem>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "base/text.hpp"
#include "kiln/error.hpp"
#include "manifest/toml/string.hpp"
#include "tools/kiln/cli/interrupt.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

/// The path without symlinks, as far as it exists. Relative paths are computed from it.
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

void refuse_existing(const std::string& path, bool force) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return;
  if (!fs::is_regular_file(path, error))
    throw Error(Errc::io, base::quote(path, 4096) + " is there already and is not a regular file");
  if (!force)
    throw Error(Errc::io, base::quote(path, 4096) +
                              " is there already: --force overwrites it, -o and --name choose another");
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text[0]);
    const std::size_t more = first < 0x80 ? 0 : first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    if (more >= text.size() || (first >= 0x80 && (first < 0xc2 || first > 0xf4))) return false;
    char32_t code = more == 0 ? first : first & (0x3fu >> more);
    for (std::size_t i = 1; i <= more; ++i) {
      if ((static_cast<unsigned char>(text[i]) & 0xc0u) != 0x80) return false;
      code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3fu);
    }
    constexpr char32_t kFirstOf[] = {0, 0x80, 0x800, 0x10000};
    if (code < kFirstOf[more] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    text.remove_prefix(more + 1);
  }
  return true;
}
/// A manifest is UTF-8 text without control characters, and so are the names in it.
std::string writable(std::string name) {
  if (!is_utf8(name) || std::any_of(name.begin(), name.end(), source::is_control))
    throw Error(Errc::invalid_argument,
                base::quote(name, 4096) +
                    " cannot stand in a manifest: it must be UTF-8 without control characters; rename it");
  return name;
}

/// The name of the file below the first of the directories that it lies below; empty when it lies below none.
std::string name_below(const fs::path& file, const std::vector<std::string>& directories) {
  for (const std::string& directory : directories) {
    std::string name = path_from(file, real(directory));
    if (!name.starts_with("..")) return name;
  }
  return {};
}

/// Quoted includes that go up from the source's own directory are found only when the source is included itself,
/// from a directory above.
bool includes_from_above(const fs::path& file) {
  const auto content = base::read_file(file.string(), std::size_t{16} << 20);
  return content && content->bytes.find("#include \"../") != std::string::npos;
}

/// How `directory` reaches the source: by a relative name when the source lies below, else by a file that
/// includes it.
void reach(ImportSite& site, const fs::path& file, const fs::path& directory, const ImportAsked& asked,
           const std::string& name) {
  const std::string below = path_from(file, directory);
  std::string included = name_below(file, asked.include_dirs);
  if (!below.starts_with("..") && (included.empty() || !includes_from_above(file))) {
    site.place.source = below;
    return;
  }
  site.place.source = name + ".cu";
  if (file.filename() == site.place.source)
    site.place.source = name + ".import.cu";  // avoids a file that includes itself
  site.includer = (directory / site.place.source).string();
  if (included.empty()) {
    included = file.filename().string();
    site.include_dirs.insert(site.include_dirs.begin(), path_from(file.parent_path(), directory));
  }
  site.place.text = "#include <" + included + ">\n";
}

}  // namespace

bool is_directory(const std::string& directory, const std::string& searched) {
  std::error_code error;
  return fs::is_directory(fs::path(directory) / searched, error);
}

std::string template_name(const ImportAsked& asked, const std::string& kernel) {
  std::string stem;
  if (!asked.output.empty()) {
    const fs::path output(asked.output);
    if (output.extension() != ".toml")
      throw Error(Errc::invalid_argument, "-o " + base::quote(asked.output) + " must be a file NAME.toml");
    stem = output.stem().string();
  }
  std::string name = !asked.name.empty() ? asked.name : !stem.empty() ? stem : kernel;
  if (!base::is_identifier(name))
    throw Error(Errc::invalid_argument, "the template's name " + base::quote(name) +
                                            " must be [A-Za-z_][A-Za-z0-9_]*; choose it with --name");
  if (!stem.empty() && stem != name) {
    throw Error(Errc::invalid_argument, "--name " + base::quote(name) + " and -o " +
                                            base::quote(asked.output) +
                                            " disagree: the manifest of a template is called NAME.toml");
  }
  return name;
}

ImportSite site_of(const ImportAsked& asked, const std::string& name) {
  ImportSite out;
  const fs::path file = real(asked.file);
  // A symlink at -o itself is not followed, because it would lead into a directory that the user
  // did not name.
  const fs::path beside = fs::path(asked.output).parent_path();
  const fs::path directory =
      asked.output.empty() ? file.parent_path() : real(beside.empty() ? "." : beside.string());
  out.place.origin = file.filename().string();
  std::error_code error;
  if (!fs::is_directory(directory, error))
    throw Error(Errc::io, base::quote(directory.string(), 4096) +
                              " is no directory: the manifest cannot be written there");
  if (!asked.print) refuse_existing((directory / (name + ".toml")).string(), asked.force);
  out.place.directory = directory.string();
  out.manifest = (directory / (name + ".toml")).string();
  std::vector<std::string> all = asked.stub_dirs;
  all.insert(all.end(), asked.include_dirs.begin(), asked.include_dirs.end());
  for (const std::string& searched : all) {
    if (!fs::is_directory(searched, error))
      throw Error(Errc::invalid_argument,
                  base::quote(searched, 4096) +
                      " is no directory; -I and --stubs take one directory each, and may be repeated");
    out.include_dirs.push_back(writable(path_from(real(searched), directory)));
  }
  reach(out, file, directory, asked, name);
  writable(out.place.source);
  writable(out.place.text.substr(0, out.place.text.find('\n')));
  for (const std::string& searched : out.include_dirs) writable(searched);
  if (!out.includer.empty() && !asked.print) refuse_existing(out.includer, asked.force);
  return out;
}

std::string write_import(const ImportSite& site, const std::string& manifest, Compiles compiles) {
  std::error_code error;
  const bool keep = compiles == Compiles::not_yet && fs::exists(site.manifest, error);
  const PoliteInterrupt between_files;
  if (!site.includer.empty() && !(keep && fs::exists(site.includer, error)))
    base::write_file(site.includer, site.place.text);
  std::string path = site.manifest + (keep ? ".new" : "");
  base::write_file(path, manifest);
  if (compiles == Compiles::yes) fs::remove(site.manifest + ".new", error);
  return path;
}

}  // namespace kiln::cli

// Where an imported template lies: its manifest, and the source that the manifest names.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace kiln::cli {

/// Names with values: parameters of P=V, macros of -D, headers of --replace.
using Assignments = std::vector<std::pair<std::string, std::string>>;

struct ImportAsked {
  std::string file, output, name;
  std::vector<std::string> include_dirs, stub_dirs;  ///< of --stubs: searched before the others
  bool force = false, print = false, verbose = false;
};

/// Where the manifest lies, and how it names its source.
struct ImportPlace {
  std::string directory;  ///< absolute; the manifest is NAME.toml in it
  std::string source;     ///< relative to `directory`
  std::string origin;     ///< name of the source in messages
  std::string text;       ///< text of a source that is not written yet; empty: the source is a file
};

struct ImportSite {
  ImportPlace place;
  std::string manifest;  ///< path of the manifest
  std::string includer;  ///< path of a file to write that includes a source lying elsewhere; empty: none
  std::vector<std::string> include_dirs;  ///< relative to the manifest's directory
};

/// True when `searched`, which may be relative to `directory`, is a directory.
bool is_directory(const std::string& directory, const std::string& searched);

/// The template's name from --name, the manifest's file name, or `kernel`. Throws Error(invalid_argument)
/// when these contradict each other.
std::string template_name(const ImportAsked& asked, const std::string& kernel);
/// Throws Error(io) when a file would be overwritten without `force`, or when the place is no directory, and
/// Error(invalid_argument) when a name cannot stand in a manifest.
ImportSite site_of(const ImportAsked& asked, const std::string& name);

/// Writes all files at the end of the import. An interrupt before this leaves no file, and one during it
/// waits. An existing manifest is overwritten only by one that compiles; else the new one is NAME.toml.new
/// beside it. One that compiles replaces a NAME.toml.new, too. Returns the path of the manifest. Throws Error(io).
enum class Compiles { yes, not_yet };
std::string write_import(const ImportSite& site, const std::string& manifest, Compiles compiles);

}  // namespace kiln::cli

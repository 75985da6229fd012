// Where an imported template lies: its manifest, and the source that it names.
#pragma once

#include <string>
#include <vector>

#include "tools/kiln/import/prove.hpp"

namespace kiln::cli {

struct ImportAsked {
  std::string file, output, name;
  std::vector<std::string> include_dirs;
  bool force = false, print = false;
};

struct ImportSite {
  ImportPlace place;
  std::string manifest;  ///< of `place`
  std::string includer;  ///< a file that includes the source, when that lies elsewhere; empty: none
  std::vector<std::string> include_dirs;  ///< relative to `place`
};

/// The template's name from --name, the manifest's file name, or `kernel`. Throws Error(invalid_argument)
/// when they cannot agree.
std::string template_name(const ImportAsked& asked, const std::string& kernel);
/// Throws Error(io) when something is there that would be overwritten and `force` is not set, or that is not
/// a directory.
ImportSite site_of(const ImportAsked& asked, const std::string& name);

/// What is written, at the end and whole: an interrupt before leaves nothing, one meanwhile waits. One that
/// is there is overwritten by one that compiles alone; else the new one is NAME.toml.new beside it. Returns
/// its path. Throws Error(io).
enum class Compiles { yes, not_yet };
std::string write_import(const ImportSite& site, const std::string& manifest, Compiles compiles);

}  // namespace kiln::cli

// Where an imported template lies: its manifest, and the source that it names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "import_prove.hpp"

namespace kiln::cli {

struct ImportAsked {
  std::string file, output, name;
  std::vector<std::string> include_dirs;
  bool force = false, print = false;
};

struct ImportSite {
  ImportPlace place;     ///< what is written and proved
  ImportPlace shown;     ///< what --print says: beside the source
  std::string manifest;  ///< of `place`
  std::string includer;  ///< a file that includes the source, when that lies elsewhere; empty: none
  std::string includer_text;
  std::vector<std::string> include_dirs, shown_include_dirs;  ///< relative to either
  std::unique_ptr<base::TempDir> scratch;                     ///< of --print
};

/// The template's name from --name, the manifest's file name, or `kernel`. Throws Error(invalid_argument)
/// when they cannot agree.
std::string template_name(const ImportAsked& asked, const std::string& kernel);
/// Throws Error(io) when something is there that would be overwritten and `force` is not set, or that is not
/// a directory.
ImportSite site_of(const ImportAsked& asked, const std::string& name);

}  // namespace kiln::cli

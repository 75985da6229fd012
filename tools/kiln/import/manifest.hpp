// A draft as a manifest's text. A "# TODO: ..." follows each line that the declaration leaves open.
#pragma once

#include <string>
#include <vector>

#include "tools/kiln/import/draft.hpp"

namespace kiln::cli {

struct ImportText {
  std::string toml;
  /// Open points to fill in: "[param.H] which values it shall take".
  std::vector<std::string> todo;
};

/// The manifest lines of the measures, such as "host_headers = \"shim\"".
std::vector<std::string> texts_of(const Measures& measures);

/// `source` is relative to the manifest; `origin` names the source in the head comment.
ImportText manifest_text(const ImportDraft& draft, const std::string& source, const std::string& origin);

}  // namespace kiln::cli

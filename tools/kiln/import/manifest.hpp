// A draft as a manifest's text, with a "# TODO: ..." behind each line that the declaration left open.
#pragma once

#include <string>
#include <vector>

#include "tools/kiln/import/draft.hpp"

namespace kiln::cli {

struct ImportText {
  std::string toml;
  /// What is left to fill in: "[param.H] which values it shall take".
  std::vector<std::string> todo;
};

/// Of `preinclude`: none, or kiln's shims of those measures, in order.
std::vector<std::string> preincluded(const Measures& measures);
/// The line that names them.
std::string preinclude_text(const Measures& measures);

/// `source`: relative to the manifest; `origin`: how the source is called in the head comment.
ImportText manifest_text(const ImportDraft& draft, const std::string& source, const std::string& origin);

}  // namespace kiln::cli

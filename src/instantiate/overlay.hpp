// The texts that the compiler gets for an instantiation with host_code = "cut": the source and the project's
// headers without what the kernel does not use. The files stay as they are.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "closure/closure.hpp"
#include "instantiate/instantiate.hpp"

namespace kiln::source {

struct Overlay {
  std::string source;  ///< in the place of Instantiation::source
  /// Headers with another text than on disk, by symbolic name; and the other files of the same search
  /// directories, with their paths (or the symbolic name of the same file in `files`). A search directory with
  /// a cut header shows the compiler only these files.
  std::vector<std::pair<std::string, std::string>> files, beside;
  std::set<std::string> cut;  ///< names whose declarations were all cut
  bool unmarked = false;      ///< a kept function has no execution space
};

/// Reads the project's headers again. Headers that come with kiln and toolkit headers stay whole. Without
/// host_code = "cut" it returns the source as it is. Throws Error(source) when a header cannot be read.
Overlay overlay_of(const Instantiation& unit, const Closure& closure);

/// The rules of a cut as one text of the key: two equal texts cut equal sources in the same way.
std::string host_code_text(const CompileSpec& compile);

}  // namespace kiln::source

// The result of steps 1 and 2 of the path for an instantiation, and the reasons for what is missing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cache/store/store.hpp"
#include "runtime/path/unit.hpp"

namespace kiln::runtime {

struct Explanation {
  /// A store that could not be read, or whose record under this key cannot be served.
  struct Fault {
    std::string directory;
    cache::Miss miss;
  };
  compile::MadeKey made;
  std::optional<Obtained> found;  ///< a record of another toolchain or arch has another key
  std::string directory;          ///< directory of the store that has it; empty: memory
  std::vector<Fault> faults;
  std::string unpublishable;  ///< not empty: the reason why no compile of it is ever cached
  /// Include spellings in project files for which no file was found (source::Closure).
  std::vector<std::string> missing;
  /// True when a project file has a computed include. A compile is then cached only if the key covers
  /// what it read.
  bool computed_include = false;
};

}  // namespace kiln::runtime

// What steps 1 and 2 of the path have for an instantiation, and what kept them from having more.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cache/store/store.hpp"
#include "runtime/path/unit.hpp"

namespace kiln::runtime {

struct Explanation {
  /// A place that has something under this key and cannot serve it.
  struct Fault {
    std::string directory;
    cache::Miss miss;
  };
  compile::MadeKey made;
  std::optional<Obtained> found;  ///< its key is another one when it is another toolchain's record
  std::string directory;          ///< of the store that has it; empty: memory
  std::vector<Fault> faults;
  std::string unpublishable;  ///< not empty: no compile of it is ever cached, and why
  /// Spellings in project files that are found nowhere now, as source::Closure.
  std::vector<std::string> missing;
  /// A project file has a computed include: a compile is cached only if the key covers what it read.
  bool computed_include = false;
};

}  // namespace kiln::runtime

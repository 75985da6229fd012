// kiln import --check: tries each kernel of a directory of sources.
#pragma once

#include <string>

#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/import/place.hpp"

namespace kiln::cli {

struct ImportCheck {
  std::string directory;
  ImportAsked asked;  ///< include and stub directories
  Assignments define, replace;
};

/// Prints a row for each kernel: whether it compiles, what it took, and what is missing. Writes no manifest.
/// Returns done, or partly when a kernel does not compile. Throws Error(io) when there is no such directory.
int check_sources(Context& context, const ImportCheck& check);

}  // namespace kiln::cli

// kiln import: writes a first manifest for an existing kernel, and compiles it as proof.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_import(Command app, Context& context);

}  // namespace kiln::cli

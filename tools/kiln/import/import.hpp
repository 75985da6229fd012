// kiln import: a first manifest for a kernel that exists, compiled to prove it.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_import(Command app, Context& context);

}  // namespace kiln::cli

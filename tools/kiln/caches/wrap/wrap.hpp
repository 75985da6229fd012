// kiln wrap: runs a command with the caches of its JIT compilers restored before and captured after.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_wrap(Command app, Context& context);

}  // namespace kiln::cli

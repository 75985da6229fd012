// The commands for the caches of other JIT compilers: caches, wrap.
#pragma once

#include "tools/kiln/caches/wrap/wrap.hpp"
#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_caches(Command app, Context& context);

}  // namespace kiln::cli

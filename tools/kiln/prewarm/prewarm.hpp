// kiln prewarm: compiles a whole plan ahead of time.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_prewarm(Command app, Context& context);

}  // namespace kiln::cli

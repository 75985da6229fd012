// kiln top: who compiles, waits or holds a lock, live.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_top(Command app, Context& context);

}  // namespace kiln::cli

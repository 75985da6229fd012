// kiln top: shows live which processes compile, wait or hold locks.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_top(Command app, Context& context);

}  // namespace kiln::cli

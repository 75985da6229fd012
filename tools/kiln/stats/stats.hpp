// kiln stats: what is cached, what it saves, and what was counted.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_stats(Command app, Context& context);

}  // namespace kiln::cli

// kiln caches why.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_caches_why(Command app, Context& context);

}  // namespace kiln::cli

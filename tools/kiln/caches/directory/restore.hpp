// kiln caches restore.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_caches_restore(Command app, Context& context);

}  // namespace kiln::cli

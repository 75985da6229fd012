// kiln gc: reduces the disk space of the cache.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_gc(Command app, Context& context);

}  // namespace kiln::cli

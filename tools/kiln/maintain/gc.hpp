// kiln gc: makes the cache take less on the disk.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_gc(Command app, Context& context);

}  // namespace kiln::cli

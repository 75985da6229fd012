// kiln man: man pages from the same source as --help.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_man(Command app, Context& context);

}  // namespace kiln::cli

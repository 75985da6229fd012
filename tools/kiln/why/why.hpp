// kiln why: which step of the lookup path would serve a specialisation now, and why no earlier step does.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_why(Command app, Context& context);

}  // namespace kiln::cli

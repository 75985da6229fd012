// kiln why: which step of the path would serve a specialisation now, and why not an earlier one.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_why(Command app, Context& context);

}  // namespace kiln::cli

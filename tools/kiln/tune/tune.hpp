// kiln tune: finds the best `tune` candidates of parameters on this GPU, and stores them as a choice.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_tune(Command app, Context& context);

}  // namespace kiln::cli

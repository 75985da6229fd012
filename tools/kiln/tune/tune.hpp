// kiln tune: which candidates of the tunable parameters are best on this GPU, stored as a choice.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_tune(Command app, Context& context);

}  // namespace kiln::cli

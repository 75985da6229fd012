// kiln remote: the fleet's tier, which nodes share.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_remote(Command app, Context& context);

}  // namespace kiln::cli

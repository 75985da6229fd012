// kiln remote push: writes entries of the cache and its layers to the tier.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_remote_push(Command remote, Context& context);

}  // namespace kiln::cli

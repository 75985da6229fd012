// kiln remote push: entries of the cache and its layers into the tier.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_remote_push(Command remote, Context& context);

}  // namespace kiln::cli

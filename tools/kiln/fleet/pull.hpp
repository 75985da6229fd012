// kiln remote pull: gets entries of the tier into the cache or a layer.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_remote_pull(Command remote, Context& context);

}  // namespace kiln::cli

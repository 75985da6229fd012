// kiln remote prune: removes what no node can use.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_remote_prune(Command remote, Context& context);

}  // namespace kiln::cli

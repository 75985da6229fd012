// kiln remote status: whether the servers answer, how fast, and what they hold.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_remote_status(Command remote, Context& context);

}  // namespace kiln::cli

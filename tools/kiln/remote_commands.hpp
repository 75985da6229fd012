// The subcommands of `kiln remote`, one file each.
#pragma once

#include "command.hpp"

namespace kiln::cli {

class Context;

void add_remote_status(Command remote, Context& context);
void add_remote_push(Command remote, Context& context);
void add_remote_pull(Command remote, Context& context);
void add_remote_prune(Command remote, Context& context);

}  // namespace kiln::cli

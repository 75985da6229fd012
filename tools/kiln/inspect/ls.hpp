// kiln ls: lists the cached entries.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_ls(Command app, Context& context);

}  // namespace kiln::cli

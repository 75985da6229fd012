// kiln diff: the differences between two cached entries.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_diff(Command app, Context& context);

}  // namespace kiln::cli

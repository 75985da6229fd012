// kiln show: everything about one cached entry.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_show(Command app, Context& context);

}  // namespace kiln::cli

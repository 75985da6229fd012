// kiln clear: empties the cache.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_clear(Command app, Context& context);

}  // namespace kiln::cli

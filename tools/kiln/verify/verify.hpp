// kiln verify: reads every page and record of the cache, in a separate process.
#pragma once

#include "tools/kiln/cli/command.hpp"
#include "tools/kiln/verify/store_reader.hpp"

namespace kiln::cli {

class Context;

void add_verify(Command app, Context& context);

}  // namespace kiln::cli

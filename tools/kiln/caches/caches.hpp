// kiln caches: the caches of other JIT compilers, as blobs of the stores.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_caches(Command app, Context& context);

}  // namespace kiln::cli

// kiln bundle: a portable, sorted, reproducible, signed archive of entries.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_bundle(Command app, Context& context);

}  // namespace kiln::cli

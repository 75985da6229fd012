// kiln compile: gets one specialisation through the lookup path, without a GPU.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_compile(Command app, Context& context);

}  // namespace kiln::cli

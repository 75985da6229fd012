// kiln run: launch on generated data, compare with the reference, time against the roofline.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_run(Command app, Context& context);

}  // namespace kiln::cli

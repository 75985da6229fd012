// kiln run: launches on generated data, compares with the reference, and times against the roofline.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_run(Command app, Context& context);

}  // namespace kiln::cli

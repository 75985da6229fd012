// kiln lint: what is wrong, unused or left out in manifests.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_lint(Command app, Context& context);

}  // namespace kiln::cli

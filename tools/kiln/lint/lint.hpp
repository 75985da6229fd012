// kiln lint: reports wrong, unused and missing parts of manifests.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_lint(Command app, Context& context);

}  // namespace kiln::cli

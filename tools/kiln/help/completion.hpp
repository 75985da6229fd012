// kiln completion: the scripts for bash, zsh and fish.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_completion(Command app, Context& context);

}  // namespace kiln::cli

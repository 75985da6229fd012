// kiln templates: lists the templates, or shows one.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_templates(Command app, Context& context);

}  // namespace kiln::cli

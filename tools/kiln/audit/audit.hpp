// kiln audit: recompiles cached entries and compares the bytes.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_audit(Command app, Context& context);

}  // namespace kiln::cli

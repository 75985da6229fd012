// kiln report: writes one HTML page about the cache.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_report(Command app, Context& context);

}  // namespace kiln::cli

// kiln run: launches on generated data, compares with the reference, and times against the roofline. `kiln
// tune` does the same with each of its candidates, so this header also gives cases, checks and sizes.
#pragma once

#include "tools/kiln/cli/command.hpp"
#include "tools/kiln/run/case.hpp"
#include "tools/kiln/run/check.hpp"
#include "tools/kiln/run/members.hpp"
#include "tools/kiln/run/sizes.hpp"

namespace kiln::cli {

class Context;

void add_run(Command app, Context& context);

}  // namespace kiln::cli

// kiln doctor: checks that this machine has what kiln needs, and that it works.
#pragma once

#include "tools/kiln/cli/command.hpp"
#include "tools/kiln/doctor/lock_holder.hpp"

namespace kiln::cli {

class Context;

void add_doctor(Command app, Context& context);

}  // namespace kiln::cli

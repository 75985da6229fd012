// kiln top: who compiles, waits or holds, live.
#include "commands.hpp"

namespace kiln::cli {

void add_top(CLI::App&, Context&) {}

}  // namespace kiln::cli

// kiln diff: what differs between two cached entries.
#include "commands.hpp"

namespace kiln::cli {

void add_diff(CLI::App&, Context&) {}

}  // namespace kiln::cli

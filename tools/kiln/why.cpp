// kiln why: would this specialisation be served, from where, and if not, what differs from what is cached.
#include "commands.hpp"

namespace kiln::cli {

void add_why(CLI::App&, Context&) {}

}  // namespace kiln::cli

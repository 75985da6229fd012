// kiln man: man pages, from the same source as --help.
#include "commands.hpp"

namespace kiln::cli {

void add_man(CLI::App&, Context&) {}

}  // namespace kiln::cli

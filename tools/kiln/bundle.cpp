// kiln bundle: a portable, sorted, reproducible, signed archive of entries. Its subcommands.
#include "commands.hpp"

namespace kiln::cli {

void add_bundle(CLI::App&, Context&) {}

}  // namespace kiln::cli

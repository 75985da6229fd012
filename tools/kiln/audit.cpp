// kiln audit: recompiles cached entries and compares the bytes.
#include "commands.hpp"

namespace kiln::cli {

void add_audit(CLI::App&, Context&) {}

}  // namespace kiln::cli

// kiln report: one HTML page about the cache.
#include "commands.hpp"

namespace kiln::cli {

void add_report(CLI::App&, Context&) {}

}  // namespace kiln::cli

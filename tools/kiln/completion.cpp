// kiln completion: for bash, zsh and fish.
#include "commands.hpp"

namespace kiln::cli {

void add_completion(CLI::App&, Context&) {}

}  // namespace kiln::cli

// Messages for a command line that is not understood.
#pragma once

#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace kiln::cli {

/// The subcommand that was chosen, at any depth; `app` when none was chosen.
CLI::App& chosen_of(CLI::App& app);

/// The message of a parse error, with the nearest known name for an unknown one.
std::string usage_message(CLI::App& app, const CLI::ParseError& error);

}  // namespace kiln::cli

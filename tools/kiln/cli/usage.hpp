// What a command line that is not understood is answered with.
#pragma once

#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace kiln::cli {

/// The subcommand that was chosen, at whatever depth; `app` when none was.
CLI::App& chosen_of(CLI::App& app);

/// What a parse error says, with the nearest name where one is unknown.
std::string usage_message(CLI::App& app, const CLI::ParseError& error);

}  // namespace kiln::cli

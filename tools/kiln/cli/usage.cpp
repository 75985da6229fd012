#include "tools/kiln/cli/usage.hpp"

#include <CLI/CLI.hpp>

#include "base/text.hpp"
#include "tools/kiln/cli/command.hpp"
#include "tools/kiln/cli/command_tree.hpp"

namespace kiln::cli {
namespace {

/// Message for an unknown subcommand. It suggests the nearest known name, also for names that other
/// tools use ("list").
std::string unknown_subcommand(const std::string& word, const CommandPage& page, bool of_kiln) {
  std::vector<std::string> known;
  for (const CommandPage& sub : page.subcommands) known.push_back(sub.word());
  std::string nearest = base::did_you_mean(word, known);
  if (of_kiln) {
    if (word == "list") nearest = base::did_you_mean("ls", known);
    if (!base::did_you_mean(word, {"version"}).empty()) nearest = "; did you mean '--version'?";
    if (nearest.empty()) known.push_back("--version");
  }
  return "unknown subcommand '" + word + "'" +
         (nearest.empty() ? "; there are: " + base::join(known, " ") : nearest);
}

}  // namespace

CLI::App& chosen_of(CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : chosen_of(*chosen.front());
}

std::string usage_message(CLI::App& app, const CLI::ParseError& error) {
  CLI::App& where = chosen_of(app);
  const CommandPage page = describe(Command(where));
  std::string message = error.what();
  const std::vector<std::string> unexpected = app.remaining(true);
  const bool no_subcommand = dynamic_cast<const CLI::RequiredError*>(&error) && !page.subcommands.empty();
  if ((dynamic_cast<const CLI::ExtrasError*>(&error) || no_subcommand) && !unexpected.empty()) {
    const std::string word = unexpected.front().substr(0, unexpected.front().find('='));
    std::vector<std::string> known;
    if (word.starts_with('-')) {
      for (const CommandOption& option : page.options) {
        if (!option.positional) known.push_back(option.names.back());
      }
      message = "unknown flag '" + word + "'" + base::did_you_mean(word, known);
    } else if (!page.subcommands.empty()) {
      message = unknown_subcommand(word, page, &where == &app);
    } else {
      message = "unexpected argument '" + unexpected.front() + "'";
    }
  }
  return message + " (see '" + page.name + " --help')";
}

}  // namespace kiln::cli

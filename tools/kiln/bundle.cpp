// kiln bundle: a portable, sorted, reproducible, signed archive of entries. Its subcommands.
#include <CLI/CLI.hpp>

#include "bundle_commands.hpp"
#include "commands.hpp"

namespace kiln::cli {

void add_bundle(CLI::App& app, Context& context) {
  CLI::App* bundle = app.add_subcommand("bundle", "Carry entries elsewhere: a reproducible, signed file");
  bundle->require_subcommand(1);
  add_bundle_export(*bundle, context);
  add_bundle_import(*bundle, context);
  add_bundle_verify(*bundle, context);
  add_bundle_diff(*bundle, context);
  add_bundle_sign(*bundle, context);
  add_bundle_keygen(*bundle, context);
  bundle->footer(
      "A bundle holds entries of a cache without paths, times or names of machines: the same entries\n"
      "give the same bytes. Recipes are in docs/deploying.md; 'kiln bundle COMMAND --help' explains one.");
}

}  // namespace kiln::cli

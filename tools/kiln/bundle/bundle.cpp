// kiln bundle: the subcommands for a portable, sorted, reproducible, signed archive of entries.
#include "tools/kiln/bundle/bundle.hpp"

#include "tools/kiln/bundle/diff.hpp"
#include "tools/kiln/bundle/export.hpp"
#include "tools/kiln/bundle/import.hpp"
#include "tools/kiln/bundle/sign.hpp"
#include "tools/kiln/bundle/verify.hpp"

namespace kiln::cli {

void add_bundle(Command app, Context& context) {
  const Command bundle =
      app.subcommand("bundle", "Move entries between machines in a reproducible, signed file");
  bundle.require_subcommand();
  add_bundle_export(bundle, context);
  add_bundle_import(bundle, context);
  add_bundle_verify(bundle, context);
  add_bundle_diff(bundle, context);
  add_bundle_sign(bundle, context);
  add_bundle_keygen(bundle, context);
  bundle.footer(
      "A bundle holds entries of a cache without paths, times or machine names, so the same entries give\n"
      "the same bytes. Recipes are in docs/guide/ship.md; 'kiln bundle COMMAND --help' explains a command.");
}

}  // namespace kiln::cli

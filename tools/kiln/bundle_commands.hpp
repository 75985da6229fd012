// The subcommands of `kiln bundle`, one file each.
#pragma once

namespace CLI {
class App;
}

namespace kiln::cli {

class Context;

void add_bundle_export(CLI::App& bundle, Context& context);
void add_bundle_import(CLI::App& bundle, Context& context);
void add_bundle_verify(CLI::App& bundle, Context& context);
void add_bundle_diff(CLI::App& bundle, Context& context);
void add_bundle_sign(CLI::App& bundle, Context& context);
void add_bundle_keygen(CLI::App& bundle, Context& context);

}  // namespace kiln::cli

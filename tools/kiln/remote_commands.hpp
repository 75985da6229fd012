// The subcommands of `kiln remote`, one file each.
#pragma once

namespace CLI {
class App;
}

namespace kiln::cli {

class Context;

void add_remote_status(CLI::App& remote, Context& context);
void add_remote_push(CLI::App& remote, Context& context);
void add_remote_pull(CLI::App& remote, Context& context);
void add_remote_prune(CLI::App& remote, Context& context);

}  // namespace kiln::cli

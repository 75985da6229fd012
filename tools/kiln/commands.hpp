// The subcommands. Each adds itself to the application and, when chosen, sets the context's action.
#pragma once

namespace CLI {
class App;
}

namespace kiln::cli {

class Context;

void add_templates(CLI::App& app, Context& context);
void add_compile(CLI::App& app, Context& context);
void add_lint(CLI::App& app, Context& context);
void add_run(CLI::App& app, Context& context);
void add_tune(CLI::App& app, Context& context);
void add_import(CLI::App& app, Context& context);
void add_prewarm(CLI::App& app, Context& context);
void add_ls(CLI::App& app, Context& context);
void add_show(CLI::App& app, Context& context);
void add_why(CLI::App& app, Context& context);
void add_diff(CLI::App& app, Context& context);
void add_stats(CLI::App& app, Context& context);
void add_top(CLI::App& app, Context& context);
void add_report(CLI::App& app, Context& context);
void add_verify(CLI::App& app, Context& context);
void add_audit(CLI::App& app, Context& context);
void add_gc(CLI::App& app, Context& context);
void add_clear(CLI::App& app, Context& context);
void add_bundle(CLI::App& app, Context& context);
void add_remote(CLI::App& app, Context& context);
void add_doctor(CLI::App& app, Context& context);
void add_completion(CLI::App& app, Context& context);
void add_man(CLI::App& app, Context& context);

}  // namespace kiln::cli

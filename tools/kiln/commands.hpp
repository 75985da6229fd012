// The subcommands. Each adds itself to the application and, when chosen, sets the context's action.
#pragma once

#include "command.hpp"

namespace kiln::cli {

class Context;

void add_templates(Command app, Context& context);
void add_compile(Command app, Context& context);
void add_lint(Command app, Context& context);
void add_run(Command app, Context& context);
void add_tune(Command app, Context& context);
void add_import(Command app, Context& context);
void add_prewarm(Command app, Context& context);
void add_ls(Command app, Context& context);
void add_show(Command app, Context& context);
void add_why(Command app, Context& context);
void add_diff(Command app, Context& context);
void add_stats(Command app, Context& context);
void add_top(Command app, Context& context);
void add_report(Command app, Context& context);
void add_verify(Command app, Context& context);
void add_audit(Command app, Context& context);
void add_gc(Command app, Context& context);
void add_clear(Command app, Context& context);
void add_bundle(Command app, Context& context);
void add_remote(Command app, Context& context);
void add_doctor(Command app, Context& context);
void add_completion(Command app, Context& context);
void add_man(Command app, Context& context);

}  // namespace kiln::cli

// The subcommands of `kiln bundle`, one file each.
#pragma once

#include "command.hpp"

namespace kiln::cli {

class Context;

void add_bundle_export(Command bundle, Context& context);
void add_bundle_import(Command bundle, Context& context);
void add_bundle_verify(Command bundle, Context& context);
void add_bundle_diff(Command bundle, Context& context);
void add_bundle_sign(Command bundle, Context& context);
void add_bundle_keygen(Command bundle, Context& context);

}  // namespace kiln::cli

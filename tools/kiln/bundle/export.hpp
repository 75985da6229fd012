// kiln bundle export: entries of the cache and its layers as one reproducible file.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_bundle_export(Command bundle, Context& context);

}  // namespace kiln::cli

// kiln bundle import: entries of a bundle into the cache or a layer.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_bundle_import(Command bundle, Context& context);

}  // namespace kiln::cli

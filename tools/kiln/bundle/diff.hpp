// kiln bundle diff: which entries two bundles, or a bundle and the cache, do not share.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_bundle_diff(Command bundle, Context& context);

}  // namespace kiln::cli

// kiln bundle verify: format, digests, every entry and the signature.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_bundle_verify(Command bundle, Context& context);

}  // namespace kiln::cli

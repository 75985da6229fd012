// kiln bundle verify: checks the format, the digests, every entry and the signature.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_bundle_verify(Command bundle, Context& context);

}  // namespace kiln::cli

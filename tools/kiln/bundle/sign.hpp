// kiln bundle sign and kiln bundle keygen: Ed25519 signatures in minisign's format.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

void add_bundle_sign(Command bundle, Context& context);
void add_bundle_keygen(Command bundle, Context& context);

}  // namespace kiln::cli

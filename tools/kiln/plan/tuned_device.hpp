// --device NAME: whose tuned choices hold, for commands that need no GPU.
#pragma once

#include <string>

#include "manifest/manifest.hpp"

namespace kiln::cli {

class Command;

void add_device_option(Command sub, std::string& name);
/// A choice can matter: some parameter has candidates.
bool has_tune(const source::Manifest& manifest) noexcept;

}  // namespace kiln::cli

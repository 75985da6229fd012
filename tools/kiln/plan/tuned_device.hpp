// --device NAME: the device whose tuned choices apply, for commands that need no GPU.
#pragma once

#include <string>

#include "manifest/manifest.hpp"

namespace kiln::cli {

class Command;

void add_device_option(Command sub, std::string& name);
/// True when some parameter has candidates, so that a choice can matter.
bool has_tune(const source::Manifest& manifest) noexcept;

}  // namespace kiln::cli

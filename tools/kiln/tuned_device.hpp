// --device NAME: whose tuned choices hold, for commands that need no GPU.
#pragma once

#include <string>

#include "source/manifest.hpp"

namespace CLI {
class App;
}

namespace kiln::cli {

void add_device_option(CLI::App& sub, std::string& name);
/// A choice can matter: some parameter has candidates.
bool has_tune(const source::Manifest& manifest) noexcept;

}  // namespace kiln::cli

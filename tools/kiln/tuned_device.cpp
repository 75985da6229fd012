#include "tuned_device.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "not_empty.hpp"

namespace kiln::cli {

void add_device_option(CLI::App& sub, std::string& name) {
  not_empty(
      sub.add_option("--device", name,
                     "Take what was tuned on a device of this name; default: this GPU, if it is of the arch"))
      ->type_name("NAME");
}

bool has_tune(const source::Manifest& manifest) noexcept {
  return std::any_of(manifest.parameters.begin(), manifest.parameters.end(),
                     [](const source::ParameterSpec& p) { return !p.tune.empty(); });
}

}  // namespace kiln::cli

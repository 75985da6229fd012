#include "tools/kiln/plan/tuned_device.hpp"

#include <algorithm>
#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

void add_device_option(Command sub, std::string& name) {
  sub.option("--device", name,
             "Use the choices that were tuned on a GPU of this name; default: this GPU, if it has the arch")
      .not_empty()
      .type_name("NAME");
}

bool has_tune(const source::Manifest& manifest) noexcept {
  return std::any_of(manifest.parameters.begin(), manifest.parameters.end(),
                     [](const source::ParameterSpec& p) { return !p.tune.empty(); });
}

}  // namespace kiln::cli

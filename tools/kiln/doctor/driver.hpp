// Probes of the driver and the devices, and a load of an image on the first device.
#pragma once

#include <optional>
#include "tools/kiln/doctor/empty_kernel.hpp"
#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {

void probe_driver(const std::optional<EmptyKernel>& kernel, Findings& out);

}  // namespace kiln::cli

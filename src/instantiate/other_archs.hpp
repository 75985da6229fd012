// Images of other archs that serve a device. Code for a base or family target runs on more GPUs than one, so a
// device may find such an image where its own was never made.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "instantiate/instantiate.hpp"

namespace kiln::source {

/// Instantiations of the same kernel for the other archs whose images the device of `exact` can run, the best
/// first. Left out are archs that the manifest does not support, and archs for which it gives another
/// kernel: other values of parameters or derives, or another source, name, option or export. `exact` has the
/// arch that has all instructions of the device.
std::vector<Instantiation> for_other_archs(const Instantiation& exact);

/// The fewest archs whose machine code serves all devices of the compute capabilities `devices`, such as 103, that the
/// manifest supports. An arch with fewer features is preferred, because later devices may run it, too. A device
/// that the manifest does not support, or that a [[require]] refuses, is left out; `refused` receives the reason
/// of a [[require]]. Throws as resolve and instantiate, and what refuses the devices when none is left.
std::vector<base::Arch> covering_archs(const std::shared_ptr<const Template>& origin,
                                       std::span<const Value> values, std::span<const int> devices,
                                       std::vector<std::string>* refused = nullptr);

}  // namespace kiln::source

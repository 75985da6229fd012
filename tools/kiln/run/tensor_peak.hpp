// The other floor of the roofline: a kernel that only multiplies.
#pragma once

#include "tools/kiln/run/check.hpp"

namespace kiln::cli {

/// Flops per microsecond of the tensor cores for products of `unit`. 0 where kiln has no kernel for this device or dtype.
/// The best of `tries` short launches counts: a longer one runs into the limit of the card's power, which depends on
/// the numbers that are multiplied. Throws Error.
double tensor_peak(RunCase& run, Timer& timer, Dtype unit, int tries);

}  // namespace kiln::cli

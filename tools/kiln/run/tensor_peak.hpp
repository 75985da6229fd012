// The other floor of the roofline: a kernel that only multiplies.
#pragma once

#include "tools/kiln/run/check.hpp"

namespace kiln::cli {

/// Flops per microsecond of the tensor cores for products of `unit`. 0 where kiln has no kernel for this device or dtype.
/// The best of `tries` launches counts, because the card's clock changes with its temperature and power. A kernel that
/// needs less power for its products may run at a higher clock, and so exceed this rate by some per cent. Throws Error.
double tensor_peak(RunCase& run, Timer& timer, Dtype unit, int tries);

}  // namespace kiln::cli

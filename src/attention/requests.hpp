// The lengths of a batch, checked, as what a work list needs of each request.
#pragma once

#include <vector>

#include "attention/plan.hpp"

namespace kiln::attention {

/// Throws Error(invalid_argument): names the array, the entry and what was allowed.
std::vector<Request> checked_requests(const KernelShape& shape, const Limits& limits, const Lengths& lengths);

}  // namespace kiln::attention

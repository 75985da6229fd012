// Checks the lengths of a batch, and turns them into what a work list needs of each request.
#pragma once

#include <vector>

#include "attention/plan.hpp"

namespace kiln::attention {

/// Throws an Error(invalid_argument) that names the array, the entry and the allowed values.
std::vector<Request> checked_requests(const KernelShape& shape, const Limits& limits, const Lengths& lengths);

}  // namespace kiln::attention

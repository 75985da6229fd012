// An order in which each thing comes after what it needs.
#pragma once

#include <functional>
#include <vector>

namespace kiln::source {

/// Indices in an order in which each comes after what it needs, earlier ones first among the free. When that
/// is impossible, calls `cycle` with the indices of one, first and last equal.
std::vector<int> topological_order(const std::vector<std::vector<int>>& needs,
                                   const std::function<void(const std::vector<int>&)>& cycle);

}  // namespace kiln::source

// Topological order.
#pragma once

#include <functional>
#include <vector>

namespace kiln::source {

/// Indices in an order in which each comes after the ones that it needs. Where the order is free, lower
/// indices come first. When there is a cycle, calls `cycle` with its indices, the first repeated at the
/// end; `cycle` must throw.
std::vector<int> topological_order(const std::vector<std::vector<int>>& needs,
                                   const std::function<void(const std::vector<int>&)>& cycle);

}  // namespace kiln::source

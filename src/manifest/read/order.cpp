#include "manifest/read/order.hpp"

#include <algorithm>

namespace kiln::source {
namespace {

/// Depth-first search. It recurses as deep as the longest chain; manifests have at most a few hundred names.
struct Visit {
  const std::vector<std::vector<int>>& needs;
  const std::function<void(const std::vector<int>&)>& report;
  std::vector<int> order, path;
  std::vector<bool> done;

  void operator()(int i) {
    if (done[static_cast<std::size_t>(i)]) return;
    if (const auto first = std::find(path.begin(), path.end(), i); first != path.end()) {
      std::vector<int> cycle(first, path.end());
      cycle.push_back(i);
      return report(cycle);  // throws
    }
    path.push_back(i);
    for (const int next : needs[static_cast<std::size_t>(i)]) (*this)(next);
    path.pop_back();
    done[static_cast<std::size_t>(i)] = true;
    order.push_back(i);
  }
};

}  // namespace

std::vector<int> topological_order(const std::vector<std::vector<int>>& needs,
                                   const std::function<void(const std::vector<int>&)>& cycle) {
  Visit visit{needs, cycle, {}, {}, std::vector<bool>(needs.size())};
  for (std::size_t i = 0; i < needs.size(); ++i) visit(static_cast<int>(i));
  return std::move(visit.order);
}

}  // namespace kiln::source

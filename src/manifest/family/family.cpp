#include "manifest/family/family.hpp"

#include <algorithm>

namespace kiln::source {

FamilyEdges::FamilyEdges(std::vector<std::int64_t> edges) : edges_(std::move(edges)) {
  for (std::size_t bits = 1; bits < 64; ++bits) {
    const std::int64_t least = static_cast<std::int64_t>((std::uint64_t{1} << (bits - 1)) + 1);
    const auto found = std::lower_bound(edges_.begin(), edges_.end() - 1, least);
    first_[bits] = static_cast<std::uint8_t>(found - edges_.begin());
  }
}

}  // namespace kiln::source

// [family]: the members of a template among which a launch picks by the value of an argument. A member is an
// ordinary specialisation. The grammar is docs/reference/manifest.md.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kiln::source {

/// The greatest values that the members of a family are for, in ascending order. The last member also serves
/// everything above its edge.
class FamilyEdges {
 public:
  static constexpr std::size_t kMost = 256;

  FamilyEdges() = default;
  /// REQUIRES: 1 to kMost edges, which are 1 or more and strictly ascending.
  explicit FamilyEdges(std::vector<std::int64_t> edges);

  const std::vector<std::int64_t>& all() const noexcept { return edges_; }
  std::size_t size() const noexcept { return edges_.size(); }
  /// The index of the member that serves `value`: the first one whose edge is not below it. Values below 1 are
  /// served by the first member. One lookup, and one comparison where the edges are powers of two.
  [[gnu::always_inline]] std::size_t of(std::int64_t value) const noexcept {
    if (value <= 1) return 0;
    std::size_t at = first_[static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(value) - 1))];
    while (at + 1 < edges_.size() && edges_[at] < value) ++at;
    return at;
  }
  std::int64_t edge_of(std::int64_t value) const noexcept { return edges_[of(value)]; }

 private:
  std::vector<std::int64_t> edges_;
  /// For each number of bits in `value - 1`, the member that serves the least such value.
  std::array<std::uint8_t, 65> first_{};
};

struct FamilySpec {
  int by = -1;  ///< index of the argument whose value picks the member; an integer that no call leaves out
  int parameter = -1;  ///< index of the parameter whose values are the edges
  FamilyEdges edges;
};

}  // namespace kiln::source

#include "attention/line.hpp"

#include <algorithm>

namespace kiln::attention {

Line::Line(const KernelShape& shape, std::int64_t total, std::int64_t most)
    : shape_(shape),
      total_(total),
      shares_(std::clamp<std::int64_t>(total / (shape.min_units + shape.tile_cost), 1, most)),
      share_(total / shares_),
      rest_(total % shares_) {
  cuts_.reserve(static_cast<std::size_t>(shares_));
  next_cut();
}

/// To total * share / shares, rounded down: without a division, and where the product would not fit.
void Line::next_cut() {
  if (++next_share_ >= shares_) {
    cut_ = total_;
    return;
  }
  cut_ += share_, behind_ += rest_;
  if (behind_ >= shares_) ++cut_, behind_ -= shares_;
}

std::span<const Cut> Line::next(std::int64_t units) {
  const std::int64_t begin = position_;
  position_ += units + shape_.tile_cost;
  cuts_.clear();
  // Cuts are at least min_units apart, or there would be fewer shares: only the first and the last can leave
  // slivers, which go to the other side.
  for (; cut_ < position_ && next_share_ < shares_; next_cut()) {
    std::int64_t at = cut_ - begin - shape_.tile_cost;
    if (at < shape_.min_units)
      at = 0;
    else if (units - at < shape_.min_units)
      at = units;
    cuts_.push_back({next_share_, at});
  }
  return cuts_;
}

}  // namespace kiln::attention

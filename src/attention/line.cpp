#include "attention/line.hpp"

#include <algorithm>

namespace kiln::attention {

Line::Line(const KernelShape& shape, const Load& load, std::int64_t most)
    : shape_(shape),
      total_(load.cost),
      shares_(std::clamp<std::int64_t>(total_ / (shape.min_kv_blocks + shape.tile_cost), 1, most)),
      share_(total_ / shares_),
      rest_(total_ % shares_),
      most_(share_ + 2 * shape.tile_cost + shape.min_kv_blocks - 1),
      alone_(load.tiles > 0 && load.tiles <= most && load.longest <= most_ + shape.tile_cost) {
  if (alone_)
    shares_ = load.tiles, next_share_ = 1;  // room() stays 0, so every tile goes through next()
  else
    next_cut();
  cuts_.reserve(static_cast<std::size_t>(shares_));
}

/// The even cut of a share is at total * share / shares, rounded down. It is summed up, because a division is
/// slow and the product may not fit 64 bits.
void Line::next_cut() {
  if (++next_share_ >= shares_) {
    cut_ = total_;
    return;
  }
  even_ += share_, behind_ += rest_;
  if (behind_ >= shares_) ++even_, behind_ -= shares_;
  cut_ = std::max(even_, begun_ + share_);
}

std::span<const Cut> Line::next(std::int64_t kv_blocks) {
  const std::int64_t begin = position_;
  position_ += kv_blocks + shape_.tile_cost;
  cuts_.clear();
  if (alone_) {
    cut_ = position_;
    if (next_share_ < shares_) cuts_.push_back({next_share_++, kv_blocks});
    return cuts_;
  }
  // Cuts are at least min_kv_blocks apart, because the number of shares is limited so. Only the first and the
  // last cut of a tile can leave a sliver. The sliver goes to the other side of the cut.
  for (; cut_ < position_ && next_share_ < shares_; next_cut()) {
    std::int64_t at = cut_ - begin - shape_.tile_cost;
    if (at < shape_.min_kv_blocks)
      at = 0;
    else if (kv_blocks - at < shape_.min_kv_blocks || position_ - begun_ <= most_)
      at = kv_blocks;
    begun_ = at < kv_blocks ? begin + at : position_;
    if (begun_ == total_) break;  // after the last tile
    cuts_.push_back({next_share_, at});
  }
  return cuts_;
}

}  // namespace kiln::attention

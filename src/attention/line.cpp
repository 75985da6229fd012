#include "attention/line.hpp"

#include <algorithm>

namespace kiln::attention {

Line::Line(const KernelShape& shape, const Load& load, std::int64_t most)
    : cutting_(shape, load, work_list::Divisor(most)) {
  if (cutting_.alone)
    next_share_ = 1;  // room() stays 0, so every tile goes through next()
  else
    next_cut();
  cuts_.reserve(static_cast<std::size_t>(cutting_.shares));
}

/// The even cuts are summed up, because a division is slow.
void Line::next_cut() {
  if (++next_share_ >= cutting_.shares) {
    cut_ = cutting_.total;
    return;
  }
  even_ += cutting_.share, behind_ += cutting_.rest;
  if (behind_ >= cutting_.shares) ++even_, behind_ -= cutting_.shares;
  cut_ = std::max(even_, begun_ + cutting_.share);
}

std::span<const Cut> Line::next(std::int64_t kv_blocks) {
  const std::int64_t begin = position_;
  position_ += kv_blocks + cutting_.tile_cost;
  cuts_.clear();
  if (cutting_.alone) {
    cut_ = position_;
    if (next_share_ < cutting_.shares) cuts_.push_back({next_share_++, kv_blocks});
    return cuts_;
  }
  // Cuts are at least min_kv_blocks apart, because the number of shares is limited so. Only the first and the
  // last cut of a tile can leave a sliver. The sliver goes to the other side of the cut.
  for (; cut_ < position_ && next_share_ < cutting_.shares; next_cut()) {
    const std::int64_t at = cutting_.cut_tile(cut_, begin, position_, begun_);
    begun_ = at < kv_blocks ? begin + at : position_;
    if (begun_ == cutting_.total) break;  // after the last tile
    cuts_.push_back({next_share_, at});
  }
  return cuts_;
}

}  // namespace kiln::attention

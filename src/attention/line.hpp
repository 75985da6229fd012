// The line of all tiles, cut into about equal shares. Walks along the tiles and tells where
// each share begins.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/plan.hpp"
#include "templates/work_list/line.h"

namespace kiln::attention {

struct Cut {
  std::int64_t share, at;  ///< the share that begins here, and the kv blocks of the tile before the cut
};

class Line {
 public:
  using Load = work_list::Load;
  /// `most`: the largest number of shares.
  Line(const KernelShape& shape, const Load& load, std::int64_t most);

  /// The length up to the next cut. Whole tiles that take no more than that are not cut.
  std::int64_t room() const { return cut_ - position_; }
  /// Passes over whole tiles that take `cost` together. REQUIRES: cost <= room().
  void skip(std::int64_t cost) { position_ += cost; }
  /// The cuts of the next tile, in order. A cut at 0 or at `kv_blocks` leaves the tile whole. The span is
  /// valid until the next call.
  std::span<const Cut> next(std::int64_t kv_blocks);

  std::int64_t shares() const { return cutting_.shares; }

 private:
  void next_cut();

  const work_list::Cutting cutting_;
  std::vector<Cut> cuts_;                  ///< cuts of the last tile
  std::int64_t position_ = 0;              ///< the end of the tiles passed so far
  std::int64_t next_share_ = 0, cut_ = 0;  ///< the next share to begin, and where its cut is
  std::int64_t begun_ = 0;              ///< where the share before it began; inside a tile, tile_cost earlier
  std::int64_t even_ = 0, behind_ = 0;  ///< the even cut: whole part, and fraction in units of 1 / shares
};

}  // namespace kiln::attention

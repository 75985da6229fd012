// The line of all tiles, cut into about equal shares. Walks along the tiles and tells where
// each share begins.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/plan.hpp"

namespace kiln::attention {

struct Cut {
  std::int64_t share, at;  ///< the share that begins here, and the kv blocks of the tile before the cut
};

class Line {
 public:
  /// The tiles on the line.
  struct Load {
    std::int64_t cost = 0;   ///< cost of all tiles together
    std::int64_t tiles = 0;  ///< number of tiles
    /// The largest cost of one tile. It is ignored when there are more tiles than `most`.
    std::int64_t longest = 0;
  };
  /// `most`: the largest number of shares. The shape must outlive the line.
  Line(const KernelShape& shape, const Load& load, std::int64_t most);

  /// The length up to the next cut. Whole tiles that take no more than that are not cut.
  std::int64_t room() const { return cut_ - position_; }
  /// Passes over whole tiles that take `cost` together. REQUIRES: cost <= room().
  void skip(std::int64_t cost) { position_ += cost; }
  /// The cuts of the next tile, in order. A cut at 0 or at `kv_blocks` leaves the tile whole. The span is
  /// valid until the next call.
  std::span<const Cut> next(std::int64_t kv_blocks);

  std::int64_t shares() const { return shares_; }

 private:
  void next_cut();

  const KernelShape& shape_;
  const std::int64_t total_;
  std::int64_t shares_;
  const std::int64_t share_, rest_;        ///< total = shares * share + rest
  const std::int64_t most_;                ///< the most that a share takes to keep a tile whole
  const bool alone_;                       ///< there are as many shares as tiles, and none is cut
  std::vector<Cut> cuts_;                  ///< cuts of the last tile
  std::int64_t position_ = 0;              ///< the end of the tiles passed so far
  std::int64_t next_share_ = 0, cut_ = 0;  ///< the next share to begin, and where its cut is
  std::int64_t begun_ = 0;              ///< where the share before it began; inside a tile, tile_cost earlier
  std::int64_t even_ = 0, behind_ = 0;  ///< the even cut: whole part, and fraction in units of 1 / shares
};

}  // namespace kiln::attention

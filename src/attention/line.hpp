// The line of all tiles, cut into shares that are about equal: walks along it and says where they begin.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/plan.hpp"

namespace kiln::attention {

struct Cut {
  std::int64_t share, at;  ///< the share that begins here, and the kv blocks of the tile before it
};

class Line {
 public:
  /// What is on the line.
  struct Load {
    std::int64_t cost = 0;   ///< of all tiles together
    std::int64_t tiles = 0;  ///< how many there are
    std::int64_t longest =
        0;  ///< what one takes at most; not looked at where there are more of them than `most`
  };
  /// `most`: how many shares there are at most. The shape outlives it.
  Line(const KernelShape& shape, const Load& load, std::int64_t most);

  /// What there is until the next cut: whole tiles that take no more are not cut.
  std::int64_t room() const { return cut_ - position_; }
  /// Whole tiles. REQUIRES: there is room.
  void skip(std::int64_t cost) { position_ += cost; }
  /// The cuts of the next tile, in order, until the next call. At 0 and at `kv_blocks` they leave it whole.
  std::span<const Cut> next(std::int64_t kv_blocks);

  std::int64_t shares() const { return shares_; }

 private:
  void next_cut();

  const KernelShape& shape_;
  const std::int64_t total_;
  std::int64_t shares_;
  const std::int64_t share_, rest_;        ///< total = shares * share + rest
  const std::int64_t most_;                ///< that a share takes rather than cut a tile
  const bool alone_;                       ///< each tile is a share, of which there are so many
  std::vector<Cut> cuts_;                  ///< those of the last tile
  std::int64_t position_ = 0;              ///< its end
  std::int64_t next_share_ = 0, cut_ = 0;  ///< the next one to begin, and where
  std::int64_t begun_ = 0;                 ///< where the one before it has; in a tile, tile_cost sooner
  std::int64_t even_ = 0, behind_ = 0;     ///< where cut_ is in even shares, and of it, in 1 / shares
};

}  // namespace kiln::attention

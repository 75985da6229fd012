// The line of all tiles, and where it is cut into about equal shares. src/attention/plan.hpp states the rules.
#pragma once

#include "shape.h"

namespace kiln::work_list {

/// The tiles on a line.
struct Load {
  Int cost = 0;   ///< cost of all tiles together
  Int tiles = 0;  ///< number of tiles
  /// The largest cost of one tile. It is ignored when there are more tiles than shares.
  Int longest = 0;
};

/// How a line is cut. A share is the part of the line that one worker has.
struct Cutting {
  Int tile_cost, min_kv_blocks;
  Int total;        ///< the length of the line
  Int shares;       ///< number of shares
  Int share, rest;  ///< total = shares * share + rest, unless each tile is a share
  Divisor by_shares;
  Int most;    ///< the most that a share takes to keep a tile whole
  bool alone;  ///< there are as many shares as tiles, and none is cut

  /// `most_shares`: the largest number of shares.
  KILN_BOTH constexpr Cutting(const Shape& shape, const Load& load, Int most_shares)
      : tile_cost(shape.tile_cost),
        min_kv_blocks(shape.min_kv_blocks),
        total(load.cost),
        shares(between(divide_any(total, shape.min_kv_blocks + shape.tile_cost), 1, most_shares)),
        share(divide_any(total, shares)),
        rest(total - share * shares),
        by_shares(shares),
        most(share + 2 * shape.tile_cost + shape.min_kv_blocks - 1),
        alone(load.tiles > 0 && load.tiles <= most_shares && load.longest <= most + shape.tile_cost) {
    if (alone) shares = load.tiles;
  }

  /// Where a share begins if all shares are equal: total * nth / shares, rounded down. REQUIRES: nth <= shares
  /// < 2^16, since the product itself may not fit 64 bits.
  KILN_BOTH constexpr Int even(Int nth) const { return nth * share + divide(nth * rest, by_shares); }

  /// Where a cut at `cut` divides the tile that it falls into: the kv blocks of the tile before the cut. 0 and
  /// `kv_blocks` leave the tile whole.
  /// - begin, end: the tile's place on the line.
  /// - begun: where the share before the cut begins; inside a tile, tile_cost earlier.
  KILN_BOTH constexpr Int cut_tile(Int cut, Int begin, Int end, Int begun) const {
    const Int kv_blocks = end - begin - tile_cost, at = cut - begin - tile_cost;
    if (at < min_kv_blocks) return 0;
    return kv_blocks - at < min_kv_blocks || end - begun <= most ? kv_blocks : at;
  }
};

}  // namespace kiln::work_list

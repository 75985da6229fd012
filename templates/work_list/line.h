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

/// How a line is cut. A share is the part of the line that one worker has. The device counts in 32 bits where
/// the line is shorter than 2^30.
template <class Number>
struct CuttingOf {
  Number tile_cost, min_kv_blocks;
  Number total;   ///< the length of the line
  Number shares;  ///< number of shares
  Divisor by_shares;
  Number share = 0, rest = 0;  ///< total = shares * share + rest, unless each tile is a share
  Number most = 0;             ///< the most that a share takes to keep a tile whole
  bool alone = false;          ///< there are as many shares as tiles, and none is cut

  /// `most_shares`: the largest number of shares.
  KILN_BOTH constexpr CuttingOf(const Shape& shape, const Load& load, const Divisor& most_shares)
      : tile_cost(static_cast<Number>(shape.tile_cost)),
        min_kv_blocks(static_cast<Number>(shape.min_kv_blocks)),
        total(static_cast<Number>(load.cost)),
        shares(static_cast<Number>(most_shares.value)),
        by_shares(most_shares) {
    // Most batches have as many shares as there can be, and their divisor is known.
    const Int least = shape.min_kv_blocks + shape.tile_cost;
    if (static_cast<Int>(total) < static_cast<Int>(shares) * least) {
      shares = static_cast<Number>(
          larger(sizeof(Number) == 4 ? divide(total, least) : divide_any(total, least), 1));
      by_shares = Divisor(shares);
    }
    share =
        static_cast<Number>(sizeof(Number) == 4 ? divide(total, by_shares) : divide_any(total, by_shares));
    rest = total - share * shares;
    most = share + 2 * tile_cost + min_kv_blocks - 1;
    alone = load.tiles > 0 && load.tiles <= most_shares.value && load.longest <= most + tile_cost;
    if (alone) shares = static_cast<Number>(load.tiles);
  }

  /// Where a share begins if all shares are equal: total * nth / shares, rounded down. REQUIRES: nth <= shares
  /// < 2^16, since the product itself may not fit 64 bits.
  KILN_BOTH constexpr Number even(Number nth) const {
    return nth * share + static_cast<Number>(divide(nth * rest, by_shares));
  }

  /// Where a cut at `cut` divides the tile that it falls into: the kv blocks of the tile before the cut. 0 and
  /// `kv_blocks` leave the tile whole.
  /// - begin, end: the tile's place on the line.
  /// - begun: where the share before the cut begins; inside a tile, tile_cost earlier.
  KILN_BOTH constexpr Number cut_tile(Number cut, Number begin, Number end, Number begun) const {
    const Number kv_blocks = end - begin - tile_cost, at = cut - begin - tile_cost;
    if (at < min_kv_blocks) return 0;
    return kv_blocks - at < min_kv_blocks || end - begun <= most ? kv_blocks : at;
  }
};
using Cutting = CuttingOf<Int>;

}  // namespace kiln::work_list

// Sums over tiles whose kv blocks rise evenly from tile to tile, rounded down to whole blocks. A sum needs no
// loop over the tiles.
#pragma once

#include "shape.h"

namespace kiln::work_list {

/// The sum of floor((a * i + b) / m) over i = 0 .. n - 1. It follows Euclid's algorithm: each step swaps a
/// and m. REQUIRES: m > 0, and the sum fits.
KILN_BOTH KILN_APART constexpr Unsigned floor_sum(Unsigned n, Unsigned m, Unsigned a, Unsigned b) {
  KILN_KEEP_LOOP
  for (Unsigned out = 0;;) {
    if (a >= m) {
      out += n * (n - 1) / 2 * (a / m);
      a %= m;
    }
    if (b >= m) {
      out += n * (b / m);
      b %= m;
    }
    const Unsigned top = a * n + b;
    if (top < m) return out;
    n = top / m;
    b = top % m;
    const Unsigned steps = m;
    m = a;
    a = steps;
  }
}

/// How kv blocks rise from tile to tile: by `rise` blocks in `run` tiles. rise and run have no common divisor.
///
/// Two tables make sums faster: `starts` and `sums`, which fill_starts() and fill_sums() write. Without tables
/// the sums are the same.
struct Slope {
  Int rows = 1;  ///< the unit: packed rows that divide both a tile and a kv block
  Int rise = 1, run = 1;
  Unsigned one_of_run = 0;      ///< 1 / run, in units of 2^-32
  const int* starts = nullptr;  ///< [run]: the i for which rise * i leaves this rest
  const Int* sums = nullptr;    ///< [run + 1]: the sum of floor(rise * i / run) over the first i

  Slope() = default;
  KILN_BOTH explicit constexpr Slope(const Shape& shape)
      : rows(common_divisor(shape.tile_rows, shape.group * shape.tile_kv)),
        rise(divide(shape.tile_rows, rows)),
        run(divide_any(shape.group * shape.tile_kv, rows)),
        one_of_run(run > 1 ? static_cast<Unsigned>(divide_any(0xffffffff, run)) : Unsigned{1} << 32) {}

  /// A table of this size takes no longer to make than a few floor_sum.
  enum : int { MOST_IN_TABLE = 256 };

  /// The sum of floor((rise * i + rest) / run) over i = 0 .. n - 1. REQUIRES: 0 <= rest < run, 0 < n < 2^31.
  KILN_BOTH KILN_APART constexpr Int sum(Int n, Int rest) const {
    if (!starts)
      return static_cast<Int>(floor_sum(static_cast<Unsigned>(n), static_cast<Unsigned>(run),
                                        static_cast<Unsigned>(rise), static_cast<Unsigned>(rest)));
    // rise * start leaves the same rest, `up` blocks higher. So the sum is taken from `start` on, less `up`
    // for each tile.
    const Int start = starts[rest];
    const Int up = sums[start + 1] - sums[start];
    return sum_to(start + n) - sums[start] - n * up;
  }

 private:
  /// The sum of floor(rise * i / run) over i = 0 .. n - 1: whole runs, and the begin of one more. REQUIRES: n
  /// < 2^32.
  KILN_BOTH constexpr Int sum_to(Int n) const {
    // A division would take longer than the rest of the sum.
    Int runs = static_cast<Int>((static_cast<Unsigned>(n) * one_of_run) >> 32);  // may be 1 too small
    runs += n - runs * run >= run;
    const Int rest = n - runs * run;
    return rise * run * (runs * (runs - 1) / 2) + runs * (sums[run] + rise * rest) + sums[rest];
  }
};

/// For the tiles i = 0 .. tiles - 1: floor((tokens + (row + i * tile_rows) / group) / tile_kv), limited to
/// `least` .. `most`.
class Stairs {
 public:
  Stairs() = default;
  /// REQUIRES: 0 <= row < tile_rows, least <= most.
  KILN_BOTH KILN_APART constexpr Stairs(const TileShape& shape, const Slope& slope, Int tokens, Int row,
                                        Int least, Int most, Int tiles)
      : slope_(&slope), least_(least), most_(most) {
    // first_ counts the blocks before the first tile. rest_ is what is left of a block, in
    // units of slope.rows.
    first_ = tokens < 0 ? -1 - divide(-1 - tokens, shape.by_tile_kv) : divide(tokens, shape.by_tile_kv);
    rest_ = divide_any((tokens - first_ * shape.tile_kv) * shape.group + row, slope.rows);
    from_ = tiles_until(least, tiles);
    until_ = larger(tiles_until(most, tiles), from_);
    rest_ += from_ * slope.rise;
    const Int runs = divide_any(rest_, slope.run);
    first_ += runs;
    rest_ -= runs * slope.run;
  }

  /// The number of tiles before the first one that reaches `least` without the limit.
  KILN_BOTH constexpr Int from() const { return from_; }

  /// The sum over the first n tiles.
  KILN_BOTH KILN_APART constexpr Int sum(Int n) const {
    const Int before = smaller(n, from_), on = smaller(n, until_) - before;
    Int out = before * least_ + (n - before - on) * most_;
    if (on > 0) out += on * first_ + slope_->sum(on, rest_);
    return out;
  }

  /// About how many of the first tiles come to `cost`, where each tile takes `each` more. The guess takes the
  /// stairs as a straight slope. Exact sums check it, so no work list depends on its rounding.
  KILN_BOTH KILN_APART Int reach(Int cost, Int each) const {
    const Int rest = cost - from_ * (each + least_);
    if (rest <= 0) return divide_any(cost, each + least_);
    const double run = static_cast<double>(slope_->run), half = static_cast<double>(slope_->rise) / run / 2;
    const double first =
        static_cast<double>(each + first_) + (static_cast<double>(rest_) + 0.5) / run - 0.5 - half;
    const double root = square_root(first * first + 4 * half * static_cast<double>(rest));
    return from_ + static_cast<Int>(2 * static_cast<double>(rest) / (first + root));
  }

 private:
  /// The number of tiles before the first one that has `value` blocks.
  KILN_BOTH constexpr Int tiles_until(Int value, Int tiles) const {
    const Int missing = (value - first_) * slope_->run - rest_;
    return missing <= 0 ? 0 : smaller(divide_any(missing + slope_->rise - 1, slope_->rise), tiles);
  }

  const Slope* slope_ = nullptr;
  Int least_ = 0, most_ = 0;
  Int from_ = 0, until_ = 0;  ///< tiles in [from_, until_) are at neither limit
  Int first_ = 0, rest_ = 0;  ///< blocks of tile from_, and the rest in units of slope.rows
};

}  // namespace kiln::work_list

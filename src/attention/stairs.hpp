// Sums over tiles whose kv blocks rise evenly from tile to tile, rounded down to whole blocks. A sum needs no
// loop over the tiles.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "attention/plan.hpp"

namespace kiln::attention {

/// The sum of floor((a * i + b) / m) over i = 0 .. n - 1. It follows Euclid's algorithm: each step swaps a
/// and m. REQUIRES: m > 0, and the sum fits.
constexpr std::uint64_t floor_sum(std::uint64_t n, std::uint64_t m, std::uint64_t a, std::uint64_t b) {
  for (std::uint64_t out = 0;;) {
    if (a >= m) out += n * (n - 1) / 2 * (a / m), a %= m;
    if (b >= m) out += n * (b / m), b %= m;
    const std::uint64_t top = a * n + b;
    if (top < m) return out;
    n = top / m, b = top % m;
    std::swap(m, a);
  }
}

/// How kv blocks rise from tile to tile: by `rise` blocks in `run` tiles. rise and run have
/// no common divisor.
class Slope {
 public:
  /// `sums`: many sums will follow, so a table is made for them. Without the table the sums are the
  /// same, but slower.
  Slope(const KernelShape& shape, bool sums)
      : rows(std::gcd(shape.tile_rows, shape.group * shape.tile_kv)),
        rise(shape.tile_rows / rows),
        run(shape.group * shape.tile_kv / rows),
        one_of_run_((std::uint64_t{1} << 32) / static_cast<std::uint64_t>(run)) {
    if (!sums || run > kMostInTable) return;
    starts_.resize(static_cast<std::size_t>(run)), sums_.reserve(static_cast<std::size_t>(run) + 1);
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < run; sum += rise * i++ / run) {
      starts_[static_cast<std::size_t>(rise * i % run)] = i;
      sums_.push_back(sum);
    }
    sums_.push_back(sum);
  }

  /// The sum of floor((rise * i + rest) / run) over i = 0 .. n - 1. REQUIRES: 0 <= rest < run, 0 < n < 2^31.
  std::int64_t sum(std::int64_t n, std::int64_t rest) const {
    if (starts_.empty())
      return static_cast<std::int64_t>(
          floor_sum(static_cast<std::uint64_t>(n), static_cast<std::uint64_t>(run),
                    static_cast<std::uint64_t>(rise), static_cast<std::uint64_t>(rest)));
    // rise * start leaves the same rest, `up` blocks higher. So the sum is taken from `start` on, less `up`
    // for each tile.
    const auto start = static_cast<std::size_t>(starts_[static_cast<std::size_t>(rest)]);
    const std::int64_t up = sums_[start + 1] - sums_[start];
    return sum_to(static_cast<std::int64_t>(start) + n) - sums_[start] - n * up;
  }

  const std::int64_t rows;  ///< the unit: packed rows that divide both a tile and a kv block
  const std::int64_t rise, run;

 private:
  /// The sum of floor(rise * i / run) over i = 0 .. n - 1: whole runs, and the begin of one more. REQUIRES: n
  /// < 2^32.
  std::int64_t sum_to(std::int64_t n) const {
    // A division would take longer than the rest of the sum.
    auto runs =
        static_cast<std::int64_t>((static_cast<std::uint64_t>(n) * one_of_run_) >> 32);  // may be 1 too small
    runs += n - runs * run >= run;
    const std::int64_t rest = n - runs * run;
    return rise * run * (runs * (runs - 1) / 2) + runs * (sums_.back() + rise * rest) +
           sums_[static_cast<std::size_t>(rest)];
  }

  /// A table of this size takes no longer to make than a few floor_sum.
  static constexpr std::int64_t kMostInTable = 256;

  const std::uint64_t one_of_run_;    ///< 1 / run, in units of 2^-32
  std::vector<std::int64_t> starts_;  ///< [run]: the i for which rise * i leaves this rest
  std::vector<std::int64_t> sums_;    ///< [run + 1]: the sum of floor(rise * i / run) over the first i
};

/// For the tiles i = 0 .. tiles - 1: floor((tokens + (row + i * tile_rows) / group) / tile_kv), limited to
/// `least` .. `most`.
class Stairs {
 public:
  Stairs() = default;
  /// REQUIRES: 0 <= row < tile_rows, least <= most.
  Stairs(const KernelShape& shape, const Slope& slope, std::int64_t tokens, std::int64_t row,
         std::int64_t least, std::int64_t most, std::int64_t tiles)
      : slope_(&slope), least_(least), most_(most) {
    // first_ counts the blocks before the first tile. rest_ is what is left of a block, in
    // units of slope.rows.
    first_ = tokens / shape.tile_kv;
    if (tokens < first_ * shape.tile_kv) --first_;
    rest_ = ((tokens - first_ * shape.tile_kv) * shape.group + row) / slope.rows;
    const auto reaches = [&](std::int64_t value) {
      const std::int64_t missing = (value - first_) * slope.run - rest_;
      return missing <= 0 ? 0 : std::min((missing + slope.rise - 1) / slope.rise, tiles);
    };
    from_ = reaches(least), until_ = std::max(reaches(most), from_);
    rest_ += from_ * slope.rise;
    first_ += rest_ / slope.run, rest_ %= slope.run;
  }

  /// The number of tiles before the first one that reaches `least` without the limit.
  std::int64_t from() const { return from_; }

  /// The sum over the first n tiles.
  std::int64_t sum(std::int64_t n) const {
    const std::int64_t before = std::min(n, from_), on = std::min(n, until_) - before;
    std::int64_t out = before * least_ + (n - before - on) * most_;
    if (on > 0) out += on * first_ + slope_->sum(on, rest_);
    return out;
  }

  /// About how many of the first tiles come to `cost`, where each tile takes `each` more. The guess takes the
  /// stairs as a straight slope. Exact sums check it, so no work list depends on its rounding.
  std::int64_t reach(std::int64_t cost, std::int64_t each) const {
    const std::int64_t rest = cost - from_ * (each + least_);
    if (rest <= 0) return cost / (each + least_);
    const double run = static_cast<double>(slope_->run), half = static_cast<double>(slope_->rise) / run / 2;
    const double first =
        static_cast<double>(each + first_) + (static_cast<double>(rest_) + 0.5) / run - 0.5 - half;
    const double root = std::sqrt(first * first + 4 * half * static_cast<double>(rest));
    return from_ + static_cast<std::int64_t>(2 * static_cast<double>(rest) / (first + root));
  }

 private:
  const Slope* slope_ = nullptr;
  std::int64_t least_ = 0, most_ = 0;
  std::int64_t from_ = 0, until_ = 0;  ///< tiles in [from_, until_) are at neither limit
  std::int64_t first_ = 0, rest_ = 0;  ///< blocks of tile from_, and the rest in units of slope.rows
};

}  // namespace kiln::attention

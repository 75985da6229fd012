// Sums of what rises by the same from tile to tile, in whole kv blocks: so many tiles at once, whatever their
// number.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "attention/plan.hpp"

namespace kiln::attention {

/// The sum of floor((a * i + b) / m) over i = 0 .. n - 1, as Euclid's algorithm goes: by swapping what is
/// counted with what it is counted in. REQUIRES: m > 0, and the sum fits.
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

/// How kv blocks go on from tile to tile: `rise` of them in `run` tiles, which have no common divisor.
class Slope {
 public:
  /// `sums`: many will be asked for, and a table is made for them. Without it they are the same, and slower.
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
    // Some i leaves this rest, too, and is so many blocks up: the sum goes on from there.
    const auto start = static_cast<std::size_t>(starts_[static_cast<std::size_t>(rest)]);
    const std::int64_t up = sums_[start + 1] - sums_[start];
    return sum_to(static_cast<std::int64_t>(start) + n) - sums_[start] - n * up;
  }

  const std::int64_t rows;  ///< packed rows of a kv block of both
  const std::int64_t rise, run;

 private:
  /// Of floor(rise * i / run) over i = 0 .. n - 1: whole runs, and the begin of one more. REQUIRES: n < 2^32.
  std::int64_t sum_to(std::int64_t n) const {
    // A division would take longer than all else of a sum.
    auto runs =
        static_cast<std::int64_t>((static_cast<std::uint64_t>(n) * one_of_run_) >> 32);  // or one less
    runs += n - runs * run >= run;
    const std::int64_t rest = n - runs * run;
    return rise * run * (runs * (runs - 1) / 2) + runs * (sums_.back() + rise * rest) +
           sums_[static_cast<std::size_t>(rest)];
  }

  static constexpr std::int64_t kMostInTable = 256;  ///< what takes no longer to make than a few floor_sum

  const std::uint64_t one_of_run_;    ///< in 1 / 2^32
  std::vector<std::int64_t> starts_;  ///< [run]: the i for which rise * i leaves this rest
  std::vector<std::int64_t> sums_;    ///< [run + 1]: of floor(rise * i / run) for the first so many i
};

/// floor((tokens + (row + i * tile_rows) / group) / tile_kv) of the tiles i = 0 .. tiles - 1, where it is
/// between `least` and `most`, and these where it is not.
class Stairs {
 public:
  Stairs() = default;
  /// REQUIRES: 0 <= row < tile_rows, least <= most.
  Stairs(const KernelShape& shape, const Slope& slope, std::int64_t tokens, std::int64_t row,
         std::int64_t least, std::int64_t most, std::int64_t tiles)
      : slope_(&slope), least_(least), most_(most) {
    // Blocks before the first tile, and what is left of a block, in the slope's rows.
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

  /// The tiles before the first that is above the least.
  std::int64_t from() const { return from_; }

  /// Of the first n tiles.
  std::int64_t sum(std::int64_t n) const {
    const std::int64_t before = std::min(n, from_), on = std::min(n, until_) - before;
    std::int64_t out = before * least_ + (n - before - on) * most_;
    if (on > 0) out += on * first_ + slope_->sum(on, rest_);
    return out;
  }

  /// About how many of the first tiles come to `cost`, with `each` more for each: what the stairs are without
  /// their steps. A guess, which exact sums check: no work list depends on how it is rounded.
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
  std::int64_t from_ = 0, until_ = 0;  ///< the tiles that are neither at the least nor at the most
  std::int64_t first_ = 0, rest_ = 0;  ///< blocks of tile from_, and what is left, in the slope's rows
};

}  // namespace kiln::attention

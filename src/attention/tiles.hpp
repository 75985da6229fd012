// The tiles of one request and kv head: the kv tokens and the cost of each tile.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/plan.hpp"
#include "attention/stairs.hpp"

namespace kiln::attention {

struct KvRange {
  std::int32_t begin, end;  ///< tokens; begin is a multiple of tile_kv
};

class Tiles {
 public:
  /// The shape and its slope must outlive the tiles. REQUIRES: a checked shape and request, so that packed
  /// rows fit 31 bits.
  Tiles(const KernelShape& shape, const Slope& slope, std::int64_t window_left, const Request& request)
      : shape_(&shape),
        window_left_(shape.window && window_left < request.kv_len ? window_left : -1),
        request_(request),
        shift_(std::int64_t{request.kv_len} - request.qo_len),
        count_(divide(request_.qo_len * shape.group + shape.tile_rows - 1, shape.tile_rows)) {
    const std::int64_t blocks = kv_blocks_of({0, request.kv_len});
    each_ = shape.tile_cost;
    if (count_ == 1)
      each_ += kv_blocks_of(range(0));
    else if (!shape.causal)
      each_ += blocks;
    if (count_ > 1 && shape.causal)
      ends_ = Stairs(shape, slope, shift_ + shape.tile_kv, shape.tile_rows - 1, 1, blocks, count_);
    if (count_ > 1 && windowed()) begins_ = Stairs(shape, slope, shift_ - window_left_, 0, 0, blocks, count_);
    even_.tiles = windowed() ? begins_.from() : count_;
    total_ = cost(count_), even_.cost = windowed() ? cost(even_.tiles) : total_;
  }

  std::int64_t count() const { return count_; }

  KvRange range(std::int64_t tile) const {
    const std::int64_t first_row = tile * shape_->tile_rows;
    const std::int64_t first = divide(first_row, shape_->group);
    const std::int64_t last =
        divide(first_row + shape_->tile_rows - 1, shape_->group);  // may be after the request's last token
    std::int64_t begin = 0, end = request_.kv_len;
    if (shape_->causal) end = std::clamp<std::int64_t>(last + shift_ + 1, 0, request_.kv_len);
    if (windowed()) begin = std::max<std::int64_t>(0, first + shift_ - window_left_);
    if (begin >= end) return {0, 0};
    return {static_cast<std::int32_t>(divide(begin, shape_->tile_kv) * shape_->tile_kv),
            static_cast<std::int32_t>(end)};
  }

  /// The cost of the first n tiles: the kv blocks of each, and tile_cost.
  std::int64_t cost(std::int64_t n) const {
    std::int64_t out = n * each_;
    if (count_ > 1 && shape_->causal) out += ends_.sum(n);
    if (count_ > 1 && windowed()) out -= begins_.sum(n);  // a window leaves each tile at least one block
    return out;
  }
  std::int64_t cost() const { return total_; }

  /// The kv blocks of a tile that has these tokens; at least 1.
  std::int64_t kv_blocks_of(const KvRange& range) const {
    const std::int64_t behind = divide(range.end + shape_->tile_kv - 1, shape_->tile_kv);
    return std::max<std::int64_t>(behind - divide(range.begin, shape_->tile_kv), 1);
  }

  struct Reach {
    std::int64_t tiles, cost;  ///< a number of first tiles, and their cost
  };
  /// The largest number of first tiles that cost at most `cost`. REQUIRES: from.cost <= cost.
  Reach within(std::int64_t cost, Reach from) const {
    if (total_ <= cost) return {count_, total_};
    // `behind` tiles cost more, because each takes tile_cost and at least one kv block.
    std::int64_t behind = std::min(count_, from.tiles + (cost - from.cost) / (shape_->tile_cost + 1) + 1);
    std::int64_t next = count_ > 1 && shape_->causal ? guess(cost) : -1;
    for (bool guessed = next >= 0; behind - from.tiles > 1;) {
      if (next <= from.tiles || next >= behind) next = from.tiles + (behind - from.tiles) / 2;
      const std::int64_t taken = this->cost(next);
      const bool fits = taken <= cost;
      if (fits)
        from = {next, taken};
      else
        behind = next;
      next = guessed ? next + (fits ? 1 : -1) : -1;  // where steps are short, the guess is at most one off
      guessed = false;
    }
    return from;
  }

 private:
  /// About how many of the first tiles take `cost`. The first even_.tiles rise as causal lets them; later
  /// tiles count as equal.
  std::int64_t guess(std::int64_t cost) const {
    if (cost <= even_.cost) return ends_.reach(cost, each_);
    const double part = static_cast<double>(cost - even_.cost) / static_cast<double>(total_ - even_.cost);
    return even_.tiles + static_cast<std::int64_t>(part * static_cast<double>(count_ - even_.tiles));
  }
  /// Divides in 32 bits, since 64 bits take several times as long. REQUIRES: 0 <= a < 2^32, 0 < b < 2^32.
  static std::int64_t divide(std::int64_t a, std::int64_t b) {
    return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  }
  bool windowed() const { return window_left_ >= 0; }

  const KernelShape* shape_;
  std::int64_t window_left_;  ///< -1: off, also where it is at least kv_len
  Request request_;
  std::int64_t shift_;  ///< from a q token to the last kv token that causal leaves to it
  std::int64_t count_;
  std::int64_t each_;   ///< the part of the cost that all tiles have in common
  std::int64_t total_;  ///< cost of all tiles
  Reach even_;          ///< tiles before the window's begin reaches token 0; later tiles cost about the same
  Stairs ends_, begins_;  ///< in kv blocks: where causal ends and the window begins; unset for one tile
};

}  // namespace kiln::attention

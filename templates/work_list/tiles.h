// The tiles of one request and kv head: the kv tokens and the cost of each tile.
#pragma once

#include "stairs.h"

namespace kiln::work_list {

struct KvRange {
  int begin, end;  ///< tokens; begin is a multiple of tile_kv
};

/// How many kv tokens a row sees on either side of its own token. -1: all of them.
struct Windows {
  Int left = -1, right = -1;
};

/// The tiles of one request and kv head, without sums over them.
class TileRanges {
 public:
  TileRanges() = default;
  /// `request` has qo_len and kv_len. The shape must outlive this object. REQUIRES: a checked shape and request,
  /// so that packed rows fit 31 bits.
  template <class Request>
  KILN_BOTH constexpr TileRanges(const TileShape& shape, const Windows& windows, const Request& request)
      : shape_(&shape),
        window_left_(shape.window && windows.left < request.kv_len ? windows.left : -1),
        window_right_(shape.causal   ? 0
                      : shape.window ? smaller(windows.right, request.qo_len)
                                     : -1),
        qo_len_(request.qo_len),
        kv_len_(request.kv_len),
        shift_(kv_len_ - qo_len_),
        count_(divide(qo_len_ * shape.group + shape.tile_rows - 1, shape.by_tile_rows)) {}

  KILN_BOTH constexpr Int count() const { return count_; }

  KILN_BOTH constexpr KvRange range(Int tile) const {
    const Int first_row = tile * shape_->tile_rows;
    const Int first = divide(first_row, shape_->by_group);
    const Int last =
        divide(first_row + shape_->tile_rows - 1, shape_->by_group);  // may be after the request's last token
    Int begin = 0, end = kv_len_;
    if (ends_early()) end = between(last + shift_ + window_right_ + 1, 0, kv_len_);
    if (windowed()) begin = larger(0, first + shift_ - window_left_);
    if (begin >= end) return {0, 0};
    return {static_cast<int>(divide(begin, shape_->by_tile_kv) * shape_->tile_kv), static_cast<int>(end)};
  }

  /// Returns whether range() has tokens. The left end of a window alone leaves each tile at least one token.
  KILN_BOTH constexpr bool has_kv(Int tile) const {
    if (!ends_early() || kv_len_ == 0) return kv_len_ > 0;
    return divide((tile + 1) * shape_->tile_rows - 1, shape_->by_group) + shift_ + window_right_ >= 0;
  }

  /// The kv blocks of a tile that has these tokens; at least 1.
  KILN_BOTH constexpr Int kv_blocks_of(const KvRange& range) const {
    const Int behind = divide(range.end + shape_->tile_kv - 1, shape_->by_tile_kv);
    return larger(behind - divide(range.begin, shape_->by_tile_kv), 1);
  }
  KILN_BOTH constexpr Int kv_blocks(Int tile) const { return kv_blocks_of(range(tile)); }

 protected:
  KILN_BOTH constexpr bool windowed() const { return window_left_ >= 0; }
  /// Returns whether the kv tokens of a tile can end before the request's.
  KILN_BOTH constexpr bool ends_early() const { return window_right_ >= 0; }

  const TileShape* shape_ = nullptr;
  Int window_left_ = -1;   ///< -1: off, also where it is at least kv_len
  Int window_right_ = -1;  ///< -1: off; 0 with causal; at most qo_len, which leaves all kv tokens to each row
  Int qo_len_ = 0, kv_len_ = 0;
  Int shift_ = 0;  ///< from a q token to its own kv token
  Int count_ = 0;
};

class Tiles : public TileRanges {
 public:
  Tiles() = default;
  /// The slope of the shape must outlive the tiles, too.
  template <class Request>
  KILN_BOTH constexpr Tiles(const TileShape& shape, const Slope& slope, const Windows& windows,
                            const Request& request)
      : TileRanges(shape, windows, request) {
    const Int blocks = kv_blocks_of({0, request.kv_len});
    each_ = shape.tile_cost;
    if (count_ == 1)
      each_ += kv_blocks(0);
    else if (!ends_early())
      each_ += blocks;
    if (count_ > 1 && ends_early()) {
      const Int tokens = shift_ + window_right_ + shape.tile_kv;
      ends_ = Stairs(shape, slope, tokens, shape.tile_rows - 1, 1, blocks, count_);
    }
    if (count_ > 1 && windowed()) begins_ = Stairs(shape, slope, shift_ - window_left_, 0, 0, blocks, count_);
    even_.tiles = windowed() ? begins_.from() : count_;
    total_ = cost(count_);
    even_.cost = windowed() ? cost(even_.tiles) : total_;
  }

  /// The cost of the first n tiles: the kv blocks of each, and tile_cost.
  KILN_BOTH constexpr Int cost(Int n) const {
    Int out = n * each_;
    if (count_ > 1 && ends_early()) out += ends_.sum(n);
    if (count_ > 1 && windowed()) out -= begins_.sum(n);  // a window leaves each tile at least one block
    return out;
  }
  KILN_BOTH constexpr Int cost() const { return total_; }

  struct Reach {
    Int tiles, cost;  ///< a number of first tiles, and their cost
  };
  /// The largest number of first tiles that cost at most `cost`. REQUIRES: from.cost <= cost.
  KILN_BOTH Reach within(Int cost, Reach from) const {
    if (total_ <= cost) return {count_, total_};
    // `behind` tiles cost more, because each takes tile_cost and at least one kv block.
    Int behind = smaller(count_, from.tiles + divide_any(cost - from.cost, shape_->tile_cost + 1) + 1);
    Int next = count_ > 1 && ends_early() ? guess(cost) : -1;
    KILN_KEEP_LOOP
    for (bool guessed = next >= 0; behind - from.tiles > 1;) {
      if (next <= from.tiles || next >= behind) next = from.tiles + (behind - from.tiles) / 2;
      const Int taken = this->cost(next);
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
  /// About how many of the first tiles take `cost`. The first even_.tiles rise as their right ends do; later
  /// tiles count as equal.
  KILN_BOTH Int guess(Int cost) const {
    if (cost <= even_.cost) return ends_.reach(cost, each_);
    const double part = static_cast<double>(cost - even_.cost) / static_cast<double>(total_ - even_.cost);
    return even_.tiles + static_cast<Int>(part * static_cast<double>(count_ - even_.tiles));
  }
  Int each_ = 0;      ///< the part of the cost that all tiles have in common
  Int total_ = 0;     ///< cost of all tiles
  Reach even_{0, 0};  ///< tiles before the window's begin reaches token 0; later tiles cost about the same
  Stairs ends_, begins_;  ///< in kv blocks: where the kv tokens end and the window begins; unset for one tile
};

}  // namespace kiln::work_list

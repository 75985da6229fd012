// The tiles of one request and kv head: which kv tokens each of them has, and what it takes of the line.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/plan.hpp"

namespace kiln::attention {

struct KvRange {
  std::int32_t begin, end;  ///< tokens; begin is a multiple of tile_kv
};

class Tiles {
 public:
  /// REQUIRES: a shape and a request that were checked: packed rows fit 31 bits.
  Tiles(const KernelShape& shape, std::int64_t window_left, const Request& request)
      : shape_(shape),
        causal_(shape.causal),
        window_(shape.window && window_left >= 0),
        window_left_(window_left),
        request_(request),
        shift_(std::int64_t{request.kv_len} - request.qo_len) {}

  std::int64_t count() const {
    return divide(request_.qo_len * shape_.group + shape_.tile_rows - 1, shape_.tile_rows);
  }

  KvRange range(std::int64_t tile) const {
    const std::int64_t first_row = tile * shape_.tile_rows;
    const std::int64_t first = divide(first_row, shape_.group);
    const std::int64_t last =
        divide(first_row + shape_.tile_rows - 1, shape_.group);  // or behind the request's
    std::int64_t begin = 0, end = request_.kv_len;
    if (causal_) end = std::clamp<std::int64_t>(last + shift_ + 1, 0, request_.kv_len);
    if (window_) begin = std::max<std::int64_t>(0, first + shift_ - window_left_);
    if (begin >= end) return {0, 0};
    return {static_cast<std::int32_t>(divide(begin, shape_.tile_kv) * shape_.tile_kv),
            static_cast<std::int32_t>(end)};
  }

  /// Appends, for each tile, what it takes of the line together with those before it.
  void add_ends(std::vector<std::int64_t>& out) const {
    const std::int64_t tiles = count();
    const std::size_t first = out.size();
    out.resize(first + static_cast<std::size_t>(tiles));
    const std::span ends = std::span(out).subspan(first);
    if (tiles > 1 && causal_)
      window_ ? count_on<true, true>(ends) : count_on<true, false>(ends);
    else if (tiles > 1 && window_)
      count_on<false, true>(ends);
    else if (tiles > 0)
      for (const std::int64_t each = units_of(range(0)) + shape_.tile_cost; std::int64_t & end : ends)
        end = each * (&end - ends.data() + 1);
  }

 private:
  /// REQUIRES: 0 <= a < 2^32 and 0 < b: a division of 64 bits takes several times as long.
  static std::int64_t divide(std::int64_t a, std::int64_t b) {
    return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  }
  std::int64_t units_of(const KvRange& range) const {
    const std::int64_t behind = divide(range.end + shape_.tile_kv - 1, shape_.tile_kv);
    return std::max<std::int64_t>(behind - divide(range.begin, shape_.tile_kv), 1);
  }

  /// Begin and end of what masks leave to a tile go on by tile_rows / group tokens a tile: counted on, since
  /// a division for each would take longer than all else of a plan.
  template <bool Causal, bool Window>
  void count_on(std::span<std::int64_t> ends) const {
    const std::int64_t units = units_of({0, request_.kv_len}), cost = shape_.tile_cost;
    Steps end(shape_, Causal ? shift_ + shape_.tile_kv : 0, shape_.tile_rows - 1);
    Steps begin(shape_, Window ? shift_ - window_left_ : 0, 0);
    std::int64_t sum = 0;
    for (std::int64_t& out : ends) {
      const std::int64_t first = Window ? std::max<std::int64_t>(begin.next(), 0) : 0;
      const std::int64_t behind = Causal ? std::min(end.next(), units) : units;
      sum += std::max<std::int64_t>(behind - first, 1) + cost;
      out = sum;
    }
  }

  /// floor((tokens + (row + i * tile_rows) / group) / tile_kv), for i = 0, 1, ...
  class Steps {
   public:
    Steps(const KernelShape& shape, std::int64_t tokens, std::int64_t row)
        : rows_(shape.group * shape.tile_kv),
          step_(shape.tile_rows / rows_),
          rest_step_(shape.tile_rows % rows_) {
      const std::int64_t from = tokens * shape.group + row;
      units_ = from / rows_, rest_ = from % rows_;
      if (rest_ < 0) rest_ += rows_, --units_;
    }
    std::int64_t next() {
      const std::int64_t out = units_;
      units_ += step_, rest_ += rest_step_;
      if (rest_ >= rows_) rest_ -= rows_, ++units_;
      return out;
    }

   private:
    const std::int64_t rows_;  ///< of a unit
    const std::int64_t step_, rest_step_;
    std::int64_t units_ = 0, rest_ = 0;
  };

  const KernelShape& shape_;
  const bool causal_, window_;
  const std::int64_t window_left_;
  const Request request_;
  const std::int64_t shift_;  ///< from a token of q to the last kv token that causal leaves to it
};

}  // namespace kiln::attention

// The tiles of one request and kv head: which kv tokens each of them has.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/plan.hpp"

namespace kiln::attention {

struct KvRange {
  std::int32_t begin, end;  ///< tokens; begin is a multiple of tile_kv
  std::int32_t units;       ///< that the tile takes of the line: 1 at least
};

class Tiles {
 public:
  /// REQUIRES: a shape and a request that were checked.
  Tiles(const KernelShape& shape, std::int64_t window_left, const Request& request)
      : shape_(shape),
        causal_(shape.causal),
        window_(shape.window && window_left >= 0),
        window_left_(window_left),
        request_(request),
        shift_(std::int64_t{request.kv_len} - request.qo_len) {}

  std::int64_t count() const {
    return (request_.qo_len * shape_.group + shape_.tile_rows - 1) / shape_.tile_rows;
  }
  /// Whether all of them have the same.
  bool alike() const { return !causal_ && !window_; }

  KvRange range(std::int64_t tile) const {
    const std::int64_t first_row = tile * shape_.tile_rows;
    const std::int64_t first = first_row / shape_.group;
    const std::int64_t last = (first_row + shape_.tile_rows - 1) / shape_.group;  // or behind the request's
    std::int64_t begin = 0, end = request_.kv_len;
    if (causal_) end = std::clamp<std::int64_t>(last + shift_ + 1, 0, request_.kv_len);
    if (window_) begin = std::max<std::int64_t>(0, first + shift_ - window_left_);
    if (begin >= end) return {0, 0, 1};
    // Below 2^31, and a division of 64 bits takes several times as long.
    const auto tile_kv = static_cast<std::uint32_t>(shape_.tile_kv);
    const auto first_unit = static_cast<std::uint32_t>(begin) / tile_kv;
    const auto end_unit = (static_cast<std::uint32_t>(end) + tile_kv - 1) / tile_kv;
    return {static_cast<std::int32_t>(first_unit * tile_kv), static_cast<std::int32_t>(end),
            static_cast<std::int32_t>(end_unit - first_unit)};
  }

 private:
  const KernelShape& shape_;
  const bool causal_, window_;
  const std::int64_t window_left_;
  const Request request_;
  const std::int64_t shift_;  ///< from a token of q to the last kv token that causal leaves to it
};

}  // namespace kiln::attention

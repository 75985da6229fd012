// The shape that an attention kernel is built for, and the teams of its workers.
#pragma once

#include "numbers.h"

namespace kiln::work_list {

/// The values that a kernel's [work_list] fixes. min_kv_blocks is the key min_units.
struct Shape {
  Int tile_rows = 0;    ///< packed rows of a tile
  Int tile_kv = 0;      ///< kv tokens of a kv block
  Int group = 0;        ///< q heads of a kv head
  bool causal = false;  ///< q token t sees kv tokens up to t + kv_len - qo_len of its request
  /// With a window, it sees none before t + kv_len - qo_len - window_left. Without causal, it then sees none after
  /// t + kv_len - qo_len + window_right.
  bool window = false;
  Int tile_cost = 1;            ///< fixed cost of a tile, or of a part of one, in kv blocks
  Int min_kv_blocks = 4;        ///< least kv blocks of a part; a tile with fewer is never cut
  bool tiles_together = false;  ///< an item can be several whole tiles (src/attention/plan.hpp)
  bool heads_together = false;  ///< workers form teams (src/attention/plan.hpp)
  /// The kv tokens of one head that the L2 holds; 0: no waves (src/attention/waves.hpp). Lists of the device have none.
  Int resident_kv = 0;
};

/// A shape with the reciprocals of the numbers that tiles divide by.
struct TileShape : Shape {
  Divisor by_tile_rows, by_tile_kv, by_group;

  TileShape() = default;
  KILN_BOTH explicit constexpr TileShape(const Shape& shape)
      : Shape(shape), by_tile_rows(shape.tile_rows), by_tile_kv(shape.tile_kv), by_group(shape.group) {}
};

/// A shape in three words of a list's header, from which the device can write the list again.
struct ShapeWords {
  int word[3];
};

KILN_BOTH constexpr ShapeWords pack(const Shape& shape) {
  const auto pair = [](Int low, Int high) {
    return static_cast<int>(static_cast<unsigned>(low - 1) | static_cast<unsigned>(high - 1) << 16);
  };
  const unsigned options = (shape.causal ? 1u : 0u) | (shape.window ? 2u : 0u) |
                           (shape.tiles_together ? 4u : 0u) | (shape.heads_together ? 8u : 0u);
  return {{pair(shape.tile_rows, shape.tile_kv), pair(shape.group, shape.min_kv_blocks),
           static_cast<int>(static_cast<unsigned>(shape.tile_cost) | options << 17 | 0x4b5u << 21)}};
}

/// Returns false for words that pack() has not written, such as the words of a buffer of zeros.
KILN_BOTH constexpr bool unpack(const ShapeWords& words, Shape& shape) {
  const auto bits = [&](int word, int from, unsigned mask) {
    return static_cast<Int>(static_cast<unsigned>(words.word[word]) >> from & mask);
  };
  if (bits(2, 21, 0x7ff) != 0x4b5) return false;
  shape.tile_rows = bits(0, 0, 0xffff) + 1;
  shape.tile_kv = bits(0, 16, 0xffff) + 1;
  shape.group = bits(1, 0, 0xffff) + 1;
  shape.min_kv_blocks = bits(1, 16, 0xffff) + 1;
  shape.tile_cost = bits(2, 0, 0x1ffff);
  shape.causal = bits(2, 17, 1) != 0;
  shape.window = bits(2, 18, 1) != 0;
  shape.tiles_together = bits(2, 19, 1) != 0;
  shape.heads_together = bits(2, 20, 1) != 0;
  return true;
}

/// The number of workers in a team, which is also its number of heads. It is the largest number that divides
/// the heads and leaves out at most one worker in 32. It is 1 unless the shape has heads_together.
KILN_BOTH constexpr Int team_size(const Shape& shape, Int kv_heads, Int workers) {
  if (!shape.heads_together) return 1;
  Int out = smaller(kv_heads, workers);
  KILN_KEEP_LOOP
  while (divide(kv_heads, out) * out != kv_heads || divide(workers, out) * out * 32 < workers * 31) --out;
  return out;
}

}  // namespace kiln::work_list

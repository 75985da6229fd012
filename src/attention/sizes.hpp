// The shape that an attention kernel is built for, the limits of its work lists, and the size of a work list
// within them.
#pragma once

#include <cstdint>

namespace kiln::attention {

/// The values that a kernel's [work_list] fixes. min_kv_blocks is the key min_units.
struct KernelShape {
  std::int64_t tile_rows = 0;      ///< packed rows of a tile
  std::int64_t tile_kv = 0;        ///< kv tokens of a kv block
  std::int64_t group = 0;          ///< q heads of a kv head
  bool causal = false;             ///< q token t sees kv tokens up to t + kv_len - qo_len of its request
  bool window = false;             ///< and, with a window, none before t + kv_len - qo_len - window_left
  std::int64_t tile_cost = 1;      ///< fixed cost of a tile, or of a part of one, in kv blocks
  std::int64_t min_kv_blocks = 4;  ///< least kv blocks of a part; a tile with fewer is never cut
  bool tiles_together = false;     ///< an item can be several whole tiles (plan.hpp)
  bool heads_together = false;     ///< workers form teams (plan.hpp)
  std::int64_t resident_kv = 0;    ///< kv tokens of one head that the L2 holds; 0: no waves (waves.hpp)
};

/// The limits for every work list that is written to one buffer.
struct Limits {
  std::int64_t max_requests = 0;
  std::int64_t max_tokens = 0;  ///< q tokens of all requests together
  std::int64_t kv_heads = 0;
  std::int64_t workers = 0;  ///< blocks of the grid
};
inline constexpr std::int64_t kMaxWorkers = 65535;

/// The 32-bit words of a buffer that holds every work list within the limits. Throws Error(invalid_argument)
/// for limits and shapes that are out of range.
std::int64_t work_list_words(const KernelShape& shape, const Limits& limits);

}  // namespace kiln::attention

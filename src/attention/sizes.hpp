// What an attention kernel is built for, the limits of its work lists, and how large one can be within them.
#pragma once

#include <cstdint>

namespace kiln::attention {

/// What a kernel's [work_list] fixes; min_kv_blocks is its min_units.
struct KernelShape {
  std::int64_t tile_rows = 0;      ///< packed rows of a tile
  std::int64_t tile_kv = 0;        ///< kv tokens of a kv block
  std::int64_t group = 0;          ///< q heads of a kv head
  bool causal = false;             ///< row t sees kv tokens up to t + kv_len - qo_len
  bool window = false;             ///< and, of a request, none before t + kv_len - qo_len - window_left
  std::int64_t tile_cost = 1;      ///< of a tile, or a part of one, beside its kv blocks: in kv blocks
  std::int64_t min_kv_blocks = 4;  ///< least kv blocks of a part, but for a tile that has fewer
  bool tiles_together = false;     ///< items of several whole tiles, as plan.hpp tells
  bool heads_together = false;     ///< workers are teams, as plan.hpp tells
};

/// What no work list of a buffer may pass.
struct Limits {
  std::int64_t max_requests = 0;
  std::int64_t max_tokens = 0;  ///< of q, of all requests
  std::int64_t kv_heads = 0;
  std::int64_t workers = 0;  ///< blocks of the grid
};
inline constexpr std::int64_t kMaxWorkers = 65535;

/// Words of a buffer that holds every work list within the limits. Throws Error(invalid_argument) for limits
/// and shapes that can never be right.
std::int64_t work_list_words(const KernelShape& shape, const Limits& limits);

}  // namespace kiln::attention

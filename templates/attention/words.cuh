// Steps from tile to tile inside an item of an attention work list. Tests compile this header for the
// host, too.
#pragma once
#include "attention/visible.cuh"
#include "attention/words.h"
#include "kiln/types.cuh"

namespace kiln {

// Turns the item into the next of its tiles. The caller may take item.tiles() - 1 steps, and counts them. The
// other parameters have the values of the manifest's [work_list].
template <bool CAUSAL, bool WINDOW>
__device__ __forceinline__ void go_to_next_tile(AttentionItem& item, i32 tile_rows, i32 tile_kv, i32 group,
                                                i32 window_left, i32 window_right = -1) {
  item.first_row += tile_rows;
  const auto sees = [&](i32 row) {
    return visible<CAUSAL, WINDOW>(min(row / group, item.qo_len - 1), item.qo_len, item.kv_len, window_left,
                                   window_right);
  };
  item.kv_begin = max(sees(item.first_row).first, 0);
  item.kv_end = min(sees(item.first_row + tile_rows - 1).last + 1, item.kv_len);
  if (item.kv_begin >= item.kv_end) item.kv_begin = item.kv_end = 0;
  item.kv_begin = item.kv_begin / tile_kv * tile_kv;
}

}  // namespace kiln

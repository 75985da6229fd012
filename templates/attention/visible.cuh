// Which kv tokens causal and window leave to a row of attention.
#pragma once
#include "kiln/types.cuh"

namespace kiln {

// The kv tokens that a row may see: [first, last]. Both masks are aligned at the right end: the last token of q sees the last one of kv.
// REQUIRES: fewer than 2^30 tokens.
struct Visible {
  i32 first, last;

  // Of 64 tokens: bit i is that of token kv + i.
  __device__ __forceinline__ u64 bits(i32 kv) const {
    const i32 low = max(first, kv) - kv, high = min(last - kv, 63);
    return high < low ? 0 : (~0ull << low) & (~0ull >> (63 - high));
  }
};

// Of token `qo`, below qo_len, of a request. window_left < 0: no window; it reaches so many tokens to the left of the row's own.
template <bool CAUSAL, bool WINDOW>
__device__ __forceinline__ Visible visible(i32 qo, i32 qo_len, i32 kv_len, i32 window_left) {
  const i32 own = qo + kv_len - qo_len;
  return {WINDOW && window_left >= 0 ? own - min(window_left, kv_len + qo_len) : -0x40000000,
          CAUSAL ? own : kv_len - 1};
}

}  // namespace kiln

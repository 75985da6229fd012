// The kv tokens that causal and window masks leave to a row of attention.
#pragma once
#include "kiln/types.cuh"

namespace kiln {

// The kv tokens that a row may see are [first, last]; both bounds may be negative. Both masks are aligned at
// the right end: the last query token sees the last kv token. REQUIRES: fewer than 2^30 tokens.
struct Visible {
  i32 first, last;

  // Returns a mask of 64 tokens: bit i says whether the row sees token kv + i.
  __device__ __forceinline__ u64 bits(i32 kv) const {
    const i32 low = max(first, kv) - kv, high = min(last - kv, 63);
    return high < low ? 0 : (~0ull << low) & (~0ull >> (63 - high));
  }
};

// Returns the kv tokens that query token `qo` of a request sees. The window reaches window_left tokens to the left of the
// row's own token, and window_right tokens to its right; a negative number means that this side has no end. CAUSAL
// overrides window_right. REQUIRES: 0 <= qo < qo_len.
template <bool CAUSAL, bool WINDOW>
__device__ __forceinline__ Visible visible(i32 qo, i32 qo_len, i32 kv_len, i32 window_left,
                                           i32 window_right = -1) {
  const i32 own = qo + kv_len - qo_len;
  Visible sees = {-0x40000000, CAUSAL ? own : kv_len - 1};
  if (WINDOW && window_left >= 0) sees.first = own - min(window_left, kv_len + qo_len);
  if (WINDOW && !CAUSAL && window_right >= 0) sees.last = min(own + min(window_right, qo_len), kv_len - 1);
  return sees;
}

}  // namespace kiln

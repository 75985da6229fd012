// Naive reference for attn_merge: it merges attention states in double. The grid has one block, of any size,
// per token.
#include "kiln/dtype.cuh"

namespace kiln {
namespace reference {

template <typename T, int D, bool PAIR>
__global__ void attn_merge(f64* out, const T* v, const f32* s, i32 tokens, i32 states, i32 heads,
                           i64 stride_out, i64 stride_out_head, i64 stride_v, i64 stride_v_state,
                           i64 stride_v_head, i64 stride_s, i64 stride_s_state, i64 stride_s_head, f64* s_out,
                           i64 stride_s_out, i64 stride_s_out_head, const T* v_b, const f32* s_b) {
  const i64 token = blockIdx.x;
  if (token >= tokens) return;
  for (int at = threadIdx.x; at < heads * D; at += blockDim.x) {
    const int head = at / D, i = at % D;
    const auto lse = [&](int n) {
      return to_double(
          (PAIR && n == 1 ? s_b : s + n * stride_s_state)[token * stride_s + head * stride_s_head]);
    };
    f64 largest = -1e300, sum = 0, mean = 0;  // a state with an lse below this saw nothing
    for (int n = 0; n < (PAIR ? 2 : states); ++n) largest = fmax(largest, lse(n));
    for (int n = 0; n < (PAIR ? 2 : states); ++n) {
      if (lse(n) < -1e300) continue;
      const T* state = PAIR && n == 1 ? v_b : v + n * stride_v_state;
      const f64 weight = exp2(lse(n) - largest);
      sum += weight;
      mean += weight * to_double(state[token * stride_v + head * stride_v_head + i]);
    }
    out[token * stride_out + head * stride_out_head + i] = sum > 0 ? mean / sum : 0.0;
    if (s_out && i == 0)
      s_out[token * stride_s_out + head * stride_s_out_head] = (sum > 0 ? largest : 0.0) + log2(sum);
  }
}

}  // namespace reference
}  // namespace kiln

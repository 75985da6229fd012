// Naive reference for moe_route: one block chooses the experts of all tokens, then aligns them, then quantises x. Codes
// are not rounded to e4m3, but they saturate.
#include "moe/moe_reference.cuh"

namespace kiln {
namespace reference {

// REQUIRES: ids is not null.
template <typename T, int E, int K, Score SCORE, bool BIAS, bool RENORM, int GROUPS, int TOPK_GROUPS,
          int BLOCK, bool LOCAL_ONLY, typename X, int H>
__global__ void __launch_bounds__(512)
    moe_route(f64* weights, f64* sorted_token_ids, f64* expert_ids, f64* num_tokens_post_padded, f64* inverse,
              const T* logits, i32 tokens, i64 stride_logits, i32 capacity, f32 scale, const f32* bias,
              const i32* expert_map, f64* ids, const X* x, i64 stride_x, f64* codes, f64* scales) {
  constexpr int CHOOSERS = 4;  // warps whose first thread chooses
  __shared__ f64 score[CHOOSERS][E], choice[CHOOSERS][E];
  const int warp = threadIdx.x / 32;
  for (i64 token = warp; token < tokens && warp < CHOOSERS && threadIdx.x % 32 == 0; token += CHOOSERS)
    choose<T, E, K, SCORE, BIAS, RENORM, GROUPS, TOPK_GROUPS>(weights + token * K, ids + token * K,
                                                              score[warp], choice[warp],
                                                              logits + token * stride_logits, scale, bias);
  __syncthreads();
  align<f64, E, BLOCK, LOCAL_ONLY>(sorted_token_ids, expert_ids, num_tokens_post_padded, inverse, ids, tokens,
                                   K, K, capacity, expert_map);
  for (i64 group = threadIdx.x; group < tokens * (H / 128); group += blockDim.x) {
    const X* const from = x + group / (H / 128) * stride_x + group % (H / 128) * 128;
    f64 most = 1e-10;
    for (int i = 0; i < 128; ++i) most = fmax(most, fabs(to_double(from[i])));
    scales[group] = most / 448.0;
    for (int i = 0; i < 128; ++i)
      codes[group * 128 + i] = fmax(-448.0, fmin(448.0, to_double(from[i]) / (most / 448.0)));
  }
}

}  // namespace reference
}  // namespace kiln

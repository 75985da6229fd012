// Naive reference for topk_gate, with one block per token.
#include "moe/moe_reference.cuh"

namespace kiln {
namespace reference {

template <typename T, int E, int K, Score SCORE, bool BIAS, bool RENORM, int GROUPS, int TOPK_GROUPS>
__global__ void topk_gate(f64* weights, f64* ids, const T* logits, i32 tokens, i64 stride_logits, f32 scale,
                          const f32* bias) {
  __shared__ f64 score[E], choice[E];
  const i64 token = blockIdx.x;
  if (token >= tokens || threadIdx.x > 0) return;
  choose<T, E, K, SCORE, BIAS, RENORM, GROUPS, TOPK_GROUPS>(
      weights + token * K, ids + token * K, score, choice, logits + token * stride_logits, scale, bias);
}

}  // namespace reference
}  // namespace kiln

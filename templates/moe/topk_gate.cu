// Finds for each token the K experts with the largest scores, and their weights: the gate of a mixture of
// experts (gate.cuh). A warp takes one token, or several neighbouring ones.
#include "kiln/pdl.cuh"
#include "moe/gate.cuh"

namespace kiln {

// Returns the second argument of __launch_bounds__. The registers limit the warps of an SM:
// - An SM holds 32 warps of 64 registers a thread.
// - It holds 16 warps if a lane has more than 16 experts (`per`), or 16 experts and `more`.
// `more` says that a bias waits for the sum of a softmax, or that some places of a lane have no bias.
__host__ __device__ constexpr int gate_blocks(int threads, int per, bool more) {
  return resident_blocks(per + more > 16 ? 2 * threads : threads);
}

template <typename T, int E, int K, Score SCORE, bool BIAS, bool RENORM, int GROUPS, int TOPK_GROUPS, int VEC,
          int LANES, int WARPS>
__global__ void __launch_bounds__(
    32 * WARPS,
    gate_blocks(32 * WARPS, experts_of_lane(E / GROUPS, LANES / next_pow2(GROUPS), VEC),
                BIAS && (SCORE == Score::softmax ||
                         experts_of_lane(E / GROUPS, LANES / next_pow2(GROUPS), VEC) * LANES > E)))
    topk_gate(f32* weights, i32* ids, const T* logits, i32 tokens, i64 stride_logits, f32 scale,
              const f32* bias) {
  using Tokens = Gate<T, E, K, SCORE, BIAS, RENORM, GROUPS, TOPK_GROUPS, VEC, LANES>;
  __shared__ typename Tokens::Memory memory[WARPS];

  const int warp = threadIdx.y, lane = threadIdx.x;
  const i64 own_token = (static_cast<i64>(blockIdx.x) * WARPS + warp) * Tokens::TEAMS + lane / LANES;
  // A team without a token reads the last token, and stores nothing.
  const T* row = logits + (own_token < tokens ? own_token : tokens - 1) * stride_logits;
  pdl_launch_dependents_of_few<64>();
  pdl_wait();
  Tokens::choose(
      memory[warp], lane, row, bias, [] { pdl_launch_dependents(); },
      [&](int slot, int expert, f32 weight) {
        if (own_token >= tokens) return;
        weights[own_token * K + slot] = weight * scale;
        ids[own_token * K + slot] = expert;
      });
}

}  // namespace kiln

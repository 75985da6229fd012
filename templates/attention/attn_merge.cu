// Merges attention states. Each state is the attention over a part of the keys and values. The result is the
// attention over all parts.
//
// The vectors of all heads form one flat sequence. Each thread merges one vector of all states, and loads
// BATCH states at once.
#include "attention/state.cuh"
#include "kiln/pdl.cuh"

namespace kiln {

// REQUIRES: tokens * heads < 2^31.
template <typename T, int D, bool PAIR, typename OUT, int VEC, int THREADS>
__global__ void __launch_bounds__(THREADS, resident_blocks(THREADS))
    attn_merge(OUT* out, const T* v, const f32* s, i32 tokens, i32 states, i32 heads, i64 stride_out,
               i64 stride_out_head, i64 stride_v, i64 stride_v_state, i64 stride_v_head, i64 stride_s,
               i64 stride_s_state, i64 stride_s_head, f32* s_out, i64 stride_s_out, i64 stride_s_out_head,
               const T* v_b, const f32* s_b) {
  constexpr int CHUNKS = D / VEC;
  // BATCH does not depend on VEC, so the order of the sums does not depend on VEC either.
  constexpr int BATCH = PAIR ? 2 : 4;
  const i64 chunk = static_cast<i64>(blockIdx.x) * THREADS + threadIdx.x, row = chunk / CHUNKS;
  const int column = static_cast<int>(chunk % CHUNKS) * VEC;
  if (row >= static_cast<i64>(tokens) * heads) return;
  const i64 token = static_cast<u32>(row) / static_cast<u32>(heads), head = row - token * heads;
  const i64 v_at = token * stride_v + head * stride_v_head + column,
            s_at = token * stride_s + head * stride_s_head;
  const int count = PAIR ? 2 : states;

  pdl_launch_dependents_of_few<64>();
  pdl_wait();
  AttentionState<VEC> state;
#pragma unroll 1
  for (int first = 0; first < count; first += BATCH) {
    Vec<T, VEC> mean[BATCH];
    f32 lse[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      lse[i] = -infinity();
      if (!PAIR && first + i >= count) continue;
      const bool second = PAIR && i == 1;
      lse[i] = load_one((second ? s_b : s + (first + i) * stride_s_state) + s_at);
      mean[i] = load<VEC>((second ? v_b : v + (first + i) * stride_v_state) + v_at);
    }
    state.take(lse, mean);
  }
  pdl_launch_dependents();

  f32 mean[VEC];
  state.mean(mean);
  store(out + token * stride_out + head * stride_out_head + column, narrow<OUT>(mean));
  if (s_out && column == 0) s_out[token * stride_s_out + head * stride_s_out_head] = state.lse();
}

}  // namespace kiln

// Prepares RWKV7's key for the recurrence: k' = k + k (a - 1) k_a, and kk = k k_k, normalised over the head.
// Optionally it also stores b = kk a, and mixes the value: v' = v + (v_first - v) v_rate.
#include "kiln/pdl.cuh"
#include "kiln/reduce.cuh"
#include "recurrent/head_team.cuh"

namespace kiln {

template <typename T, int D, bool WITH_B, bool WITH_V, int VEC, int LANES, int THREADS, int TOKENS>
__global__ void __launch_bounds__(THREADS, resident_blocks(THREADS))
    rwkv7_kprep(T* k_out, T* kk, const T* k, const T* a, const T* k_k, const T* k_a, i64 tokens, i32 heads,
                f32 eps, T* b, T* v_out, const T* v, const T* v_first, const T* v_rate) {
  using Team = HeadTeam<D, VEC, LANES, TOKENS, THREADS>;
  constexpr int MINE = Team::MINE;
  const Team team(tokens, heads);

  pdl_launch_dependents_of_few<64>();
  pdl_wait();
  Vec<T, VEC> key[TOKENS][MINE], rate[TOKENS][MINE], key_weight[MINE], rate_weight[MINE];
  team.read(k, key);
  team.read(a, rate);
  team.read_weights(k_k, key_weight);
  team.read_weights(k_a, rate_weight);
  if constexpr (WITH_V) {
    Vec<T, VEC> own[TOKENS][MINE], first[TOKENS][MINE], share[TOKENS][MINE];
    team.read(v, own);
    team.read(v_first, first);
    team.read(v_rate, share);
#pragma unroll
    for (int t = 0; t < TOKENS; ++t) {
#pragma unroll
      for (int i = 0; i < MINE; ++i) {
        f32 x[VEC], y[VEC], weight[VEC];
        widen(own[t][i], x);
        widen(first[t][i], y);
        widen(share[t][i], weight);
        for (int j = 0; j < VEC; ++j) y[j] = fmaf(y[j] - x[j], weight[j], x[j]);
        team.write(v_out, t, i, y);
      }
    }
  }
  pdl_launch_dependents();

#pragma unroll
  for (int t = 0; t < TOKENS; ++t) {
    f32 squares = 0.0f;
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
      f32 x[VEC], weight[VEC];
      widen(key[t][i], x);
      widen(key_weight[i], weight);
      for (int j = 0; j < VEC; ++j) squares = fmaf(x[j] * weight[j], x[j] * weight[j], squares);
    }
    const f32 factor = rsqrt_approx(warp_reduce<LANES>(squares, Sum{}) + eps);
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
      f32 x[VEC], y[VEC], weight[VEC], learn[VEC];
      widen(key[t][i], x);
      widen(rate[t][i], learn);
      widen(rate_weight[i], weight);
      for (int j = 0; j < VEC; ++j) y[j] = fmaf(x[j] * (learn[j] - 1.0f), weight[j], x[j]);
      team.write(k_out, t, i, y);
      widen(key_weight[i], weight);
      for (int j = 0; j < VEC; ++j) y[j] = x[j] * weight[j] * factor;
      team.write(kk, t, i, y);
      if constexpr (WITH_B) {
        for (int j = 0; j < VEC; ++j) y[j] *= learn[j];
        team.write(b, t, i, y);
      }
    }
  }
}

}  // namespace kiln

// Computes RWKV7's output from the recurrence's o: o' = (o + (sum of r k r_k over the head) v) g.
// Optionally o is normalised over each head before that.
#include "kiln/pdl.cuh"
#include "kiln/reduce.cuh"
#include "recurrent/head_team.cuh"

namespace kiln {

// Returns the second argument of __launch_bounds__. A thread's vectors of the five arrays take `registers`
// registers. With more than 24, half as many blocks stay resident.
__host__ __device__ constexpr int out_blocks(int threads, int registers) {
  return registers > 24 ? larger(1, resident_blocks(threads) / 2) : resident_blocks(threads);
}

template <typename T, int D, bool NORM, int VEC, int LANES, int THREADS, int TOKENS>
__global__ void __launch_bounds__(
    THREADS,
    out_blocks(THREADS, 5 * TOKENS * static_cast<int>(ceil_div(D / VEC, LANES)) * Vec<T, VEC>::REGISTERS))
    rwkv7_out(T* out, const T* o, const T* r, const T* k, const T* v, const T* g, const T* r_k, i64 tokens,
              i32 heads, const T* norm_weight, const T* norm_bias, f32 eps) {
  using Team = HeadTeam<D, VEC, LANES, TOKENS, THREADS>;
  constexpr int MINE = Team::MINE;
  const Team team(tokens, heads);

  pdl_launch_dependents_of_few<64>();
  pdl_wait();
  Vec<T, VEC> x[TOKENS][MINE], receptance[TOKENS][MINE], key[TOKENS][MINE], value[TOKENS][MINE],
      gate[TOKENS][MINE];
  Vec<T, VEC> bonus[MINE], weight[MINE], bias[MINE];
  team.read(o, x);
  team.read(r, receptance);
  team.read(k, key);
  team.read(v, value);
  team.read(g, gate);
  team.read_weights(r_k, bonus);
  if (NORM && norm_weight) team.read_weights(norm_weight, weight);
  if (NORM && norm_bias) team.read_weights(norm_bias, bias);
  pdl_launch_dependents();

#pragma unroll
  for (int t = 0; t < TOKENS; ++t) {
    f32 y[MINE][VEC], correction = 0.0f, sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
      f32 a[VEC], b[VEC], c[VEC];
      widen(receptance[t][i], a);
      widen(key[t][i], b);
      widen(bonus[i], c);
      for (int j = 0; j < VEC; ++j) correction = fmaf(a[j] * b[j], c[j], correction);
      widen(x[t][i], y[i]);
      for (int j = 0; j < VEC; ++j) sum += y[i][j];
    }
    correction = warp_reduce<LANES>(correction, Sum{});
    if constexpr (NORM) {
      const f32 mean = warp_reduce<LANES>(sum, Sum{}) * (1.0f / D);
#pragma unroll
      for (int i = 0; i < MINE; ++i) {
        for (int j = 0; j < VEC; ++j) y[i][j] -= mean;
        for (int j = 0; j < VEC; ++j) squares = Team::has(i) ? fmaf(y[i][j], y[i][j], squares) : squares;
      }
      const f32 factor = rsqrt_approx(warp_reduce<LANES>(squares, Sum{}) * (1.0f / D) + eps);
#pragma unroll
      for (int i = 0; i < MINE; ++i) {
        f32 w[VEC], c[VEC];
        widen(weight[i], w);
        widen(bias[i], c);
        for (int j = 0; j < VEC; ++j) y[i][j] = fmaf(y[i][j] * factor, norm_weight ? w[j] : 1.0f, c[j]);
      }
    }
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
      f32 a[VEC], b[VEC];
      widen(value[t][i], a);
      widen(gate[t][i], b);
      for (int j = 0; j < VEC; ++j) y[i][j] = fmaf(correction, a[j], y[i][j]) * b[j];
      team.write(out, t, i, y[i]);
    }
  }
}

}  // namespace kiln

// The inputs of a delta rule's time steps: what gates and betas mean, and how a block of steps comes to shared memory and is made ready
// there (widened, normalised, exponentiated), once for all columns of the state that a block of threads has.
#pragma once
#include "kiln/copy_async.cuh"
#include "kiln/math.cuh"
#include "kiln/reduce.cuh"

namespace kiln {

// What the state is multiplied by before each step: nothing, exp(g) of the head, or exp(g) of each row (Kimi Delta Attention).
enum class Gate { none, head, key };
// What g is.
enum class GateInput {
  log_decay,  // g itself
  softplus,   // -exp(a_log) * softplus(g + dt_bias)
  bounded,    // lower_bound * sigmoid(exp(a_log) * (g + dt_bias))
};
// How strongly a step writes: 1, a beta per head, or one per head and column of the state.
enum class Beta { none, head, value };
enum class BetaInput { plain, sigmoid, twice_sigmoid };

// rate is exp(a_log). Exact functions: an error of exp is raised to the power of the steps.
template <GateInput INPUT>
__device__ __forceinline__ f32 decay_of(f32 g, f32 rate, f32 lower_bound) {
  if constexpr (INPUT == GateInput::softplus) g = -rate * (g > 20.0f ? g : log1pf(expf(g)));
  if constexpr (INPUT == GateInput::bounded) g = lower_bound * sigmoid(rate * g);
  return expf(g);
}

template <BetaInput INPUT>
__device__ __forceinline__ f32 beta_of(f32 beta) {
  if constexpr (INPUT == BetaInput::plain) return beta;
  return sigmoid(beta) * (INPUT == BetaInput::twice_sigmoid ? 2.0f : 1.0f);
}

// Elements of the widest access that rows of n elements allow. REQUIRES: n % 4 == 0.
template <typename T>
__host__ __device__ constexpr int widest(int n) {
  return sizeof(T) == 2 && n % 8 == 0 ? 8 : 4;
}

template <typename T>
__device__ __forceinline__ f32 load_float(const T* p) {
  f32 v[1];
  widen(load<1>(p), v);
  return v[0];
}

// Steps as they lie in global memory: of one head, COLUMNS of its values. Rows that GATE and BETA do not need have one element.
template <typename T, typename G, typename B, int K, int COLUMNS, int STEPS, Gate GATE, Beta BETA>
struct RawSteps {
  alignas(16) T q[STEPS][K];
  alignas(16) T k[STEPS][K];
  alignas(16) T v[STEPS][COLUMNS];
  alignas(16) G g[STEPS][GATE == Gate::key ? K : 1];
  alignas(16) B beta[STEPS][BETA == Beta::value ? COLUMNS : 1];
};

// The same in f32. Rows of the state from K to PADDED do not exist: their q and k are 0, and their decay is 1.
template <int PADDED, int STEPS, Gate GATE>
struct ReadySteps {
  alignas(16) f32 q[STEPS][PADDED];  // times scale
  alignas(16) f32 k[STEPS][PADDED];
  alignas(16) f32 decay[STEPS][GATE == Gate::key ? PADDED : 1];
  f32 beta[STEPS];  // Beta::head
};

// Which thread of how many.
struct Team {
  int thread, threads;
};

// Begins to copy `count` rows, `stride` elements apart, of which the first `valid` elements are there.
template <int VEC, typename T, int STEPS, int LENGTH>
__device__ __forceinline__ void copy_steps(T (&to)[STEPS][LENGTH], const T* from, i64 stride, int count, int valid, Team team) {
  constexpr int CHUNKS = LENGTH / VEC;
#pragma unroll 1
  for (int chunk = team.thread; chunk < count * CHUNKS; chunk += team.threads) {
    const int step = chunk / CHUNKS, at = chunk % CHUNKS * VEC;
    if (at < valid) copy_async<VEC>(&to[step][at], from + step * stride + at);
  }
}

// q and k of `count` steps, eight threads a row. REQUIRES: STEPS is even, so that whole warps are at work.
template <bool L2NORM, typename T, int STEPS, int K, int PADDED>
__device__ __forceinline__ void widen_steps(f32 (&ready_q)[STEPS][PADDED], f32 (&ready_k)[STEPS][PADDED], const T (&q)[STEPS][K], const T (&k)[STEPS][K], f32 scale,
                                            int count, Team team) {
  static_assert(STEPS % 2 == 0 && K % 4 == 0 && PADDED % 4 == 0, "whole warps, whole vectors");
  constexpr int LANES = 8, MINE = static_cast<int>(ceil_div(PADDED / 4, LANES));
#pragma unroll 1
  for (int task = team.thread; task < (count + count % 2) * 2 * LANES; task += team.threads) {
    const int step = task / (2 * LANES), lane = task % LANES;
    const bool is_q = task % (2 * LANES) < LANES;
    const T* row = is_q ? q[step] : k[step];
    f32* ready = is_q ? ready_q[step] : ready_k[step];
    f32 values[MINE][4] = {}, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
      const int at = (lane + i * LANES) * 4;
      if (at < K) widen(load_shared<4>(row + at), values[i]);
      for (int j = 0; j < 4; ++j) squares = fmaf(values[i][j], values[i][j], squares);
    }
    f32 factor = is_q ? scale : 1.0f;
    if constexpr (L2NORM) factor *= rsqrt_approx(warp_reduce<LANES>(squares, Sum{}) + 1e-6f);
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
      const int at = (lane + i * LANES) * 4;
      for (int j = 0; j < 4; ++j) values[i][j] *= factor;
      if (at < PADDED) store_shared(ready + at, values[i]);
    }
  }
}

// exp of the gates of `count` steps, one per row of the state. bias: K values, or null.
template <GateInput INPUT, typename G, int STEPS, int K, int PADDED>
__device__ __forceinline__ void decay_steps(f32 (&decay)[STEPS][PADDED], const G (&g)[STEPS][K], const f32* bias, f32 rate, f32 lower_bound, int count, Team team) {
#pragma unroll 1
  for (int task = team.thread; task < count * (PADDED / 4); task += team.threads) {
    const int step = task / (PADDED / 4), at = task % (PADDED / 4) * 4;
    f32 v[4] = {}, b[4] = {};
    if (at < K) widen(load_shared<4>(&g[step][at]), v);
    if (at < K && INPUT != GateInput::log_decay && bias) widen(load<4>(bias + at), b);
    for (int j = 0; j < 4; ++j) v[j] = at < K ? decay_of<INPUT>(v[j] + b[j], rate, lower_bound) : 1.0f;
    store_shared(&decay[step][at], v);
  }
}

}  // namespace kiln

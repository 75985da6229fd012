// Runs a causal convolution over time, of W taps and for each channel alone: y[t] = bias + sum over j of
// weight[j] * x[t - (W - 1) + j], and then optionally SiLU. Before a sequence's first token come the inputs
// that its state holds, or zeros.
//
// A thread has VEC neighbouring channels and a run of TOKENS tokens of one sequence. It keeps the last W - 1
// inputs in registers, its window. TOKENS >= W - 1, so only a sequence's first run needs the state. The thread
// of that run also stores the new state, after it has read the old one: states are updated in place.
#include "kiln/math.cuh"
#include "kiln/pdl.cuh"
#include "recurrent/state_slots.cuh"

namespace kiln {

// True if N elements can be one Vec.
template <int N, typename T>
inline constexpr bool is_vector = N * sizeof(T) <= 16 ? (N * sizeof(T) & (N * sizeof(T) - 1)) == 0
                                                      : N * sizeof(T) % 16 == 0;

// Loads N neighbouring elements as floats. REQUIRES: p is aligned as load<N>() needs, if N elements are a Vec.
template <int N, typename T>
__device__ __forceinline__ void load_floats(const T* p, f32 (&out)[N]) {
  if constexpr (is_vector<N, T>) {
    widen(load<N>(p), out);
  } else {
    for (int i = 0; i < N; ++i) {
      f32 one[1];
      widen(load<1>(p + i), one);
      out[i] = one[0];
    }
  }
}

// Stores N floats, rounded to T. REQUIRES: as load_floats().
template <typename T, int N>
__device__ __forceinline__ void store_floats(T* p, const f32 (&in)[N]) {
  if constexpr (is_vector<N, T>) {
    store(p, narrow<T>(in));
  } else {
    for (int i = 0; i < N; ++i) store(p + i, narrow<T>({in[i]}));
  }
}

// The last TAPS inputs of VEC channels, the oldest first.
template <int TAPS, int VEC>
struct ConvWindow {
  f32 x[TAPS][VEC];

  // Takes in the next input, and drops the oldest one.
  __device__ __forceinline__ void push(const f32 (&next)[VEC]) {
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap) {
      for (int i = 0; i < VEC; ++i)
        x[tap][i] = tap + 1 < TAPS ? x[larger(0, smaller(tap + 1, TAPS - 1))][i] : next[i];
    }
  }

  // Loads and stores the channels from `channel` on of a state in global memory: [D][TAPS], or [TAPS][D] with
  // TAPS_FIRST.
  template <bool TAPS_FIRST, int D, typename STATE>
  __device__ __forceinline__ void load_from(const STATE* state, int channel) {
    if constexpr (TAPS_FIRST) {
#pragma unroll
      for (int tap = 0; tap < TAPS; ++tap) load_floats(state + tap * D + channel, x[tap]);
    } else {
      f32 all[VEC * TAPS];
      load_floats(state + channel * TAPS, all);
#pragma unroll
      for (int i = 0; i < VEC * TAPS; ++i) x[i % TAPS][i / TAPS] = all[i];
    }
  }
  template <bool TAPS_FIRST, int D, typename STATE>
  __device__ __forceinline__ void store_to(STATE* state, int channel) const {
    if constexpr (TAPS_FIRST) {
#pragma unroll
      for (int tap = 0; tap < TAPS; ++tap) store_floats(state + tap * D + channel, x[tap]);
    } else {
      f32 all[VEC * TAPS];
#pragma unroll
      for (int i = 0; i < VEC * TAPS; ++i) all[i] = x[i % TAPS][i / TAPS];
      store_floats(state + channel * TAPS, all);
    }
  }
};

// Run number `run` of all sequences. Sequence n has the runs from begin / TOKENS + n on; some numbers name no
// run, and then first >= end.
struct TokenRun {
  i32 sequence;
  i64 begin, end, first;  // tokens of the sequence, and the run's first token
};

template <bool VARLEN, int TOKENS>
__device__ __forceinline__ TokenRun token_run(i64 run, const i64* cu_seqlens, i32 sequences, i64 tokens) {
  if constexpr (VARLEN) {
    i32 low = 0, high = sequences;
    while (high - low > 1) {
      const i32 middle = low + (high - low) / 2;
      (load_one(cu_seqlens + middle) / TOKENS + middle <= run ? low : high) = middle;
    }
    const Sequence span = sequence<true>(cu_seqlens, low, 0);
    return {low, span.begin, span.end, span.begin + (run - span.begin / TOKENS - low) * TOKENS};
  } else {
    const i64 length = tokens / sequences, runs = (length + TOKENS - 1) / TOKENS, n = run / runs;
    return {static_cast<i32>(n), n * length, n < sequences ? (n + 1) * length : 0,
            n * length + run % runs * TOKENS};
  }
}

// REQUIRES: blockDim = (LANES, RUNS); gridDim.x = ceil(D / (VEC * LANES)) * ceil(runs / RUNS).
template <typename T, int D, int W, bool SILU, typename STATE, bool TAPS_FIRST, bool VARLEN, int VEC,
          int TOKENS, int LANES, int RUNS>
__global__ void __launch_bounds__(LANES* RUNS)
    conv1d(T* out, const T* x, const T* weight, i32 tokens, i32 sequences, i64 stride_x, i64 stride_out,
           const T* bias, STATE* conv_state, const i64* cu_seqlens, const i32* state_indices,
           const u8* has_initial_state, i32 pool, i64 stride_state, const i32* state_out_indices) {
  constexpr int TAPS = W - 1, SLICES = static_cast<int>(ceil_div(D, VEC * LANES));
  static_assert(TOKENS >= TAPS, "a run has at least W - 1 tokens");
  using Window = ConvWindow<TAPS, VEC>;
  const int channel = static_cast<int>((blockIdx.x % SLICES * LANES + threadIdx.x) * VEC);

  pdl_launch_dependents_of_few<64>();
  pdl_wait();
  if (channel >= D) return;
  const TokenRun run = token_run<VARLEN, TOKENS>(static_cast<i64>(blockIdx.x / SLICES) * RUNS + threadIdx.y,
                                                 cu_seqlens, sequences, tokens);
  if (run.first >= run.end) return;
  const int count = static_cast<int>(run.end - run.first < TOKENS ? run.end - run.first : TOKENS);

  Vec<T, VEC> inputs[TOKENS];
#pragma unroll
  for (int i = 0; i < TOKENS; ++i) {
    if (i < count) inputs[i] = load<VEC>(x + (run.first + i) * stride_x + channel);
  }
  const i32 slot =
      state_indices ? static_cast<i32>(load<1>(state_indices + run.sequence).word[0]) : run.sequence;
  if (slot < 0) {
#pragma unroll
    for (int i = 0; i < TOKENS; ++i) {
      if (i < count) store(out + (run.first + i) * stride_out + channel, splat<T, VEC>(0.0f));
    }
    return;
  }
  f32 weights[VEC * W], offset[VEC] = {};
  load_floats(weight + channel * W, weights);
  if (bias) load_floats(bias + channel, offset);

  const auto state_of = [&](i32 n) { return conv_state + n * stride_state; };
  Window window = {};
  if (run.first > run.begin) {
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap)
      load_floats(x + (run.first - TAPS + tap) * stride_x + channel, window.x[tap]);
  } else if (conv_state) {
    if (starts_from_state(has_initial_state, run.sequence))
      window.template load_from<TAPS_FIRST, D>(state_of(slot), channel);
    if (!state_out_indices) {  // the new state: the sequence's last inputs
      Window last = window;
#pragma unroll
      for (int tap = 0; tap < TAPS; ++tap) {
        const i64 token = run.end - TAPS + tap;
        if (token < run.begin) continue;
        f32 next[VEC];
        load_floats(x + token * stride_x + channel, next);
        last.push(next);
      }
      last.template store_to<TAPS_FIRST, D>(state_of(slot), channel);
    }
  }

#pragma unroll
  for (int i = 0; i < TOKENS; ++i) {
    if (i >= count) break;
    const i64 token = run.first + i;
    f32 next[VEC], y[VEC];
    widen(inputs[i], next);
#pragma unroll
    for (int c = 0; c < VEC; ++c) {
      y[c] = offset[c];
      for (int tap = 0; tap < TAPS; ++tap) y[c] = fmaf(weights[c * W + tap], window.x[tap][c], y[c]);
      y[c] = fmaf(weights[c * W + TAPS], next[c], y[c]);
      if constexpr (SILU) y[c] *= sigmoid(y[c]);
    }
    store(out + token * stride_out + channel, narrow<T>(y));
    window.push(next);
    if (conv_state && state_out_indices) {
      const i32 to = static_cast<i32>(load<1>(state_out_indices + token).word[0]);
      if (to >= 0) window.template store_to<TAPS_FIRST, D>(state_of(to), channel);
    }
  }
}

}  // namespace kiln

// One token of each sequence, by the delta rule. A block has a whole state (HeldState) and takes one pass over it.
//
// Let d be the decay, and u = beta (v - S^T (d k)). The new state is S' = d S + k u^T, and the output is
// S'^T q = S^T (d q) + (k^T q) u. Both products with S are computed together, and S' is stored at once.
#pragma once
#include "kiln/pdl.cuh"
#include "recurrent/delta_steps.cuh"
#include "recurrent/one/held_state.cuh"
#include "recurrent/state_slots.cuh"

namespace kiln {

// Values over the keys and the columns of one head.
template <int K, int V>
struct DeltaStep {
  alignas(16) f32 k[K];
  alignas(16) f32 decay[K];
  alignas(16) f32 decayed_k[K];
  alignas(16) f32 decayed_q[K];  // multiplied by scale
  alignas(16) f32 u[V];
  f32 k_q;  // k^T q
};

// Reads q, k and the gate of one token and head, and makes them ready. One warp calls begin(), and then end().
template <typename T, typename G, typename B, int K, int V, Gate GATE, GateInput GATE_INPUT, bool L2NORM,
          int VEC>
class DeltaToken {
  // One half of the warp has q and the other half has k.
  static constexpr int LANES = 16, PIECE = smaller(VEC, 4),
                       MINE = static_cast<int>(ceil_div(K / PIECE, LANES));

 public:
  __device__ __forceinline__ DeltaToken(const DeltaInputs<T, G, B>& in, i64 token, i32 value_head)
      : in_(in), token_(token), value_head_(value_head) {}

  // Begins to load the inputs.
  __device__ __forceinline__ void begin() {
    const i64 head = value_head_ / (in_.value_heads / in_.heads), at = token_ * in_.value_heads + value_head_;
    const T* from =
        is_q() ? in_.q + token_ * in_.stride_q + head * K : in_.k + token_ * in_.stride_k + head * K;
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
      if (has(i)) x_[i] = load<PIECE>(from + place(i));
      if (GATE == Gate::key && has(i)) g_[i] = load<PIECE>(in_.g + at * K + place(i));
    }
    if constexpr (GATE == Gate::head) head_g_ = load<1>(in_.g + at);
  }

  __device__ __forceinline__ void end(DeltaStep<K, V>& step) const {
    f32 x[MINE][PIECE], squares = 0.0f, k_q = 0.0f;
    for (int i = 0; i < MINE; ++i) {
      widen(x_[i], x[i]);
      for (int j = 0; j < PIECE; ++j) squares = fmaf(x[i][j], x[i][j], squares);
    }
    f32 factor = !is_q() ? 1.0f : in_.scale == 0.0f ? 1.0f / sqrtf(static_cast<f32>(K)) : in_.scale;
    if constexpr (L2NORM) factor *= rsqrt_approx(warp_reduce<LANES>(squares, Sum{}) + 1e-6f);
    const f32 rate =
        GATE_INPUT != GateInput::log_decay && in_.a_log ? expf(load_one(in_.a_log + value_head_)) : 1.0f;
    f32 head_decay = 1.0f;
    if constexpr (GATE == Gate::head) {
      const f32 bias =
          GATE_INPUT != GateInput::log_decay && in_.dt_bias ? load_one(in_.dt_bias + value_head_) : 0.0f;
      head_decay = decay_of<GATE_INPUT>(float_of(head_g_) + bias, rate, in_.lower_bound);
    }
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
      f32 g[PIECE], bias[PIECE] = {};
      widen(g_[i], g);
      if (GATE == Gate::key && GATE_INPUT != GateInput::log_decay && in_.dt_bias && has(i))
        widen(load<PIECE>(in_.dt_bias + static_cast<i64>(value_head_) * K + place(i)), bias);
      for (int j = 0; j < PIECE; ++j) {
        const f32 mine = x[i][j] * factor;
        k_q = fmaf(mine, shuffle_xor(mine, LANES), k_q);
        const f32 decay =
            GATE == Gate::key ? decay_of<GATE_INPUT>(g[j] + bias[j], rate, in_.lower_bound) : head_decay;
        if (!has(i)) continue;
        (is_q() ? step.decayed_q : step.decayed_k)[place(i) + j] = decay * mine;
        (is_q() ? step.decay : step.k)[place(i) + j] = is_q() ? decay : mine;
      }
    }
    k_q = warp_reduce<LANES>(k_q, Sum{});
    if (threadIdx.x == 0) step.k_q = k_q;
  }

 private:
  __device__ static __forceinline__ bool is_q() { return threadIdx.x < LANES; }
  __device__ static __forceinline__ int place(int i) {
    return (static_cast<int>(threadIdx.x) % LANES + i * LANES) * PIECE;
  }
  __device__ static __forceinline__ bool has(int i) { return place(i) < K; }

  const DeltaInputs<T, G, B>& in_;
  const i64 token_;
  const i32 value_head_;
  Vec<T, PIECE> x_[MINE];
  Vec<G, PIECE> g_[MINE];  // used with Gate::key alone
  Vec<G, 1> head_g_;
};

// REQUIRES: blockDim = (32, WARPS), gridDim.x = sequences * value_heads. Sequence n has only token n.
template <typename T, int K, int V, Gate GATE, GateInput GATE_INPUT, Beta BETA, BetaInput BETA_INPUT,
          bool L2NORM, typename G, typename B, int VEC, int WARPS, typename STATE, bool V_FIRST, Slots SLOTS>
__device__ __forceinline__ void delta_one(T* out, i64 stride_out, const DeltaInputs<T, G, B>& in,
                                          const StatePools<STATE>& states) {
  using Held = HeldState<K, V, STATE, V_FIRST, WARPS>;
  constexpr int COLUMNS = static_cast<int>(ceil_div(V, Held::THREADS));  // columns of a thread
  __shared__ DeltaStep<K, V> step;
  __shared__ typename Held::Dots dots;
  const i32 sequence = blockIdx.x / in.value_heads, value_head = blockIdx.x % in.value_heads;
  const i64 token = sequence, at = token * in.value_heads + value_head;
  const auto column = [](int i) { return Held::thread() + i * Held::THREADS; };

  pdl_launch_dependents_of_few<64>();
  pdl_wait();
  const i32 slot = state_slot<SLOTS>(states.indices, sequence);
  const i32 out_slot = SLOTS == Slots::token ? state_slot<SLOTS>(states.out_indices, sequence) : slot;
  DeltaToken<T, G, B, K, V, GATE, GATE_INPUT, L2NORM, VEC> inputs(in, token, value_head);
  if (threadIdx.y == 0) inputs.begin();
  Vec<T, 1> v[COLUMNS];
  Vec<B, 1> beta[COLUMNS];
#pragma unroll
  for (int i = 0; i < COLUMNS; ++i) {
    if (column(i) >= V) continue;
    v[i] = load<1>(in.v + token * in.stride_v + static_cast<i64>(value_head) * V + column(i));
    if constexpr (BETA == Beta::head) beta[i] = load<1>(in.beta + at);
    if constexpr (BETA == Beta::value) beta[i] = load<1>(in.beta + at * V + column(i));
  }
  out += token * stride_out + static_cast<i64>(value_head) * V;
  if (SLOTS != Slots::none && slot < 0) {
    for (int i = 0; i < COLUMNS; ++i) {
      if (column(i) < V) store(out + column(i), splat<T, 1>(0.0f));
    }
    return;
  }
  const i64 head_at = static_cast<i64>(value_head) * (K * V);
  const bool starts =
      states.initial && (SLOTS == Slots::none || starts_from_state(states.has_initial, sequence));
  Held state;
  state.load_from(starts ? states.initial + slot * states.stride + head_at : nullptr);
  if (threadIdx.y == 0) inputs.end(step);
  __syncthreads();
  pdl_launch_dependents();

  state.wait();
  state.dots(step.decayed_k, step.decayed_q, dots);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < COLUMNS; ++i) {
    if (column(i) >= V) continue;
    const float2 of_k_and_q = dots.sum(column(i));
    f32 u = float_of(v[i]) - of_k_and_q.x;
    if constexpr (BETA != Beta::none) u *= beta_of<BETA_INPUT>(float_of(beta[i]));
    step.u[column(i)] = u;
    store(out + column(i), narrow<T>({fmaf(step.k_q, u, of_k_and_q.y)}));
  }
  if (!states.final || (SLOTS == Slots::token && out_slot < 0)) return;
  __syncthreads();
  state.template store_next<1>(states.final + out_slot * states.stride + head_at, step.decay, {step.k},
                               {step.u});
}

}  // namespace kiln

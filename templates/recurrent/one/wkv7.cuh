// One token of each sequence, by RWKV7's recurrence. A block has a whole state (HeldState) and takes one pass over
// it.
//
// The new state is S' = w S + b (a^T S) + k v^T, and the output is S'^T r = S^T (w r) + (b^T r) (a^T S) + (k^T r) v.
// Both products with S are computed together, and S' is stored at once.
#pragma once
#include "kiln/pdl.cuh"
#include "recurrent/one/held_state.cuh"
#include "recurrent/state_slots.cuh"
#include "recurrent/wkv7_steps.cuh"

namespace kiln {

// Values over the keys and the columns of one head. With kk_a, a and b both have the opposite sign, which does
// not change the results.
template <int K, int V>
struct Wkv7Token {
  alignas(16) f32 decay[K];  // exp(w)
  alignas(16) f32 a[K];
  alignas(16) f32 b[K];
  alignas(16) f32 k[K];
  alignas(16) f32 decayed_r[K];  // multiplied by scale
  alignas(16) f32 v[V];
  alignas(16) f32 a_s[V];  // a^T S
  f32 b_r, k_r;            // b^T r and k^T r
};

// Reads r, w, k, a and b of one token and head, and makes them ready. One warp calls begin(), and then end().
template <typename T, typename W, int K, int V, Wkv7Form FORM>
class Wkv7TokenInputs {
  static constexpr int PIECE = 4, MINE = static_cast<int>(ceil_div(K / PIECE, 32));

 public:
  // Begins to load the inputs from element `at` on.
  __device__ __forceinline__ void begin(const Wkv7Inputs<T, W>& in, i64 at) {
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
      if (!has(i)) continue;
      const i64 from = at + place(i);
      r_[i] = load<PIECE>(in.r + from);
      k_[i] = load<PIECE>(in.k + from);
      a_[i] = load<PIECE>(in.a + from);
      b_[i] = load<PIECE>(in.b + from);
      w_[i] = load<PIECE>(in.w + from);
    }
  }

  __device__ __forceinline__ void end(f32 scale, Wkv7Token<K, V>& token) const {
    f32 b_r = 0.0f, k_r = 0.0f;
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
      f32 r[PIECE], k[PIECE], a[PIECE], b[PIECE], w[PIECE];
      widen(r_[i], r);
      widen(k_[i], k);
      widen(a_[i], a);
      widen(b_[i], b);
      widen(w_[i], w);
      for (int j = 0; j < PIECE; ++j) {
        if constexpr (FORM == Wkv7Form::kk_a) b[j] = -a[j] * b[j];
        r[j] *= scale;
        b_r = fmaf(b[j], r[j], b_r);
        k_r = fmaf(k[j], r[j], k_r);
        w[j] = exp2_approx(w[j] * LOG2_E);
        r[j] *= w[j];
      }
      if (!has(i)) continue;
      store_shared(token.decay + place(i), w);
      store_shared(token.a + place(i), a);
      store_shared(token.b + place(i), b);
      store_shared(token.k + place(i), k);
      store_shared(token.decayed_r + place(i), r);
    }
    b_r = warp_reduce<32>(b_r, Sum{});
    k_r = warp_reduce<32>(k_r, Sum{});
    if (threadIdx.x == 0) token.b_r = b_r, token.k_r = k_r;
  }

 private:
  __device__ static __forceinline__ int place(int i) {
    return (static_cast<int>(threadIdx.x) + i * 32) * PIECE;
  }
  __device__ static __forceinline__ bool has(int i) { return place(i) < K; }

  Vec<T, PIECE> r_[MINE], k_[MINE], a_[MINE], b_[MINE];
  Vec<W, PIECE> w_[MINE];
};

// REQUIRES: blockDim = (32, WARPS), gridDim.x = sequences * heads. Sequence n has only token n.
template <typename T, int K, int V, Wkv7Form FORM, typename W, int WARPS, typename STATE, bool V_FIRST,
          Slots SLOTS>
__device__ __forceinline__ void wkv7_one(T* o, const Wkv7Inputs<T, W>& in, f32 scale, i32 heads,
                                         const StatePools<STATE>& states) {
  using Held = HeldState<K, V, STATE, V_FIRST, WARPS>;
  constexpr int COLUMNS = static_cast<int>(ceil_div(V, Held::THREADS));  // columns of a thread
  __shared__ Wkv7Token<K, V> token;
  __shared__ typename Held::Dots dots;
  const i32 sequence = blockIdx.x / heads, head = blockIdx.x % heads;
  const auto column = [](int i) { return Held::thread() + i * Held::THREADS; };

  pdl_launch_dependents_of_few<64>();
  pdl_wait();
  const i32 slot = state_slot<SLOTS>(states.indices, sequence);
  const i32 out_slot = SLOTS == Slots::token ? state_slot<SLOTS>(states.out_indices, sequence) : slot;
  Wkv7TokenInputs<T, W, K, V, FORM> inputs;
  if (threadIdx.y == 0) inputs.begin(in, static_cast<i64>(blockIdx.x) * K);
  Vec<T, 1> v[COLUMNS];
  o += static_cast<i64>(blockIdx.x) * V;
#pragma unroll
  for (int i = 0; i < COLUMNS; ++i) {
    if (column(i) < V) v[i] = load<1>(in.v + static_cast<i64>(blockIdx.x) * V + column(i));
  }
  if (SLOTS != Slots::none && slot < 0) {
    for (int i = 0; i < COLUMNS; ++i) {
      if (column(i) < V) store(o + column(i), splat<T, 1>(0.0f));
    }
    return;
  }
  const i64 head_at = static_cast<i64>(head) * (K * V);
  const bool starts =
      states.initial && (SLOTS == Slots::none || starts_from_state(states.has_initial, sequence));
  Held state;
  state.load_from(starts ? states.initial + slot * states.stride + head_at : nullptr);
  if (threadIdx.y == 0) inputs.end(scale, token);
  __syncthreads();
  pdl_launch_dependents();

  state.wait();
  state.dots(token.a, token.decayed_r, dots);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < COLUMNS; ++i) {
    if (column(i) >= V) continue;
    const float2 of_a_and_r = dots.sum(column(i));
    f32 v_here[1];
    widen(v[i], v_here);
    token.v[column(i)] = v_here[0];
    token.a_s[column(i)] = of_a_and_r.x;
    store(o + column(i),
          narrow<T>({fmaf(token.k_r, v_here[0], fmaf(token.b_r, of_a_and_r.x, of_a_and_r.y))}));
  }
  if (!states.final || (SLOTS == Slots::token && out_slot < 0)) return;
  __syncthreads();
  state.template store_next<2>(states.final + out_slot * states.stride + head_at, token.decay,
                               {token.b, token.k}, {token.a_s, token.v});
}

}  // namespace kiln

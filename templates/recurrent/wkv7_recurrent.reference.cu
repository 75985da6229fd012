// Naive reference for wkv7_recurrent and dplr_chunk: the recurrence of RWKV7 in double. A block has a head of a sequence,
// and a thread has a column of its state.
#include "recurrent/state_slots.cuh"
#include "recurrent/wkv7_steps.cuh"

namespace kiln {
namespace reference {

// The kernel wkv7_recurrent below, and dplr_chunk.
template <typename T, int K, int V, Wkv7Form FORM, typename W, bool VARLEN, typename STATE, bool V_FIRST,
          Slots SLOTS>
__device__ __forceinline__ void wkv7_steps(f64* o, const T* r, const W* w, const T* k, const T* v, const T* a,
                                           i32 sequences, i64 length, i32 heads, const T* b, const T* kk,
                                           f32 scale, const STATE* initial_state, f64* final_state,
                                           const i64* cu_seqlens, const i32* state_indices,
                                           const u8* has_initial_state, i64 stride_state,
                                           const i32* state_out_indices) {
  const i64 state = blockIdx.x, n = state / heads, head = state % heads;
  if (n >= sequences) return;
  const i64 begin = VARLEN ? cu_seqlens[n] : n * length, end = VARLEN ? cu_seqlens[n + 1] : begin + length;
  const i64 slot = SLOTS == Slots::none ? n : state_indices[n];
  const bool starts = slot >= 0 && initial_state && (!has_initial_state || has_initial_state[n] != 0);
  for (int j = threadIdx.x; j < V; j += blockDim.x) {
    f64 s[K];
    const auto state_at = [&](i64 slot, int i) {
      return slot * stride_state + head * K * V + (V_FIRST ? j * K + i : i * V + j);
    };
    for (int i = 0; i < K; ++i) s[i] = starts ? to_double(initial_state[state_at(slot, i)]) : 0.0;
    for (i64 t = begin; t < end; ++t) {
      const i64 at = (t * heads + head) * K, at_v = (t * heads + head) * V + j;
      const auto a_of = [&](int i) {
        return FORM == Wkv7Form::kk_a ? -to_double(kk[at + i]) : to_double(a[at + i]);
      };
      const auto b_of = [&](int i) {
        return FORM == Wkv7Form::kk_a ? to_double(kk[at + i]) * to_double(a[at + i]) : to_double(b[at + i]);
      };
      f64 a_s = 0, sum = 0;
      for (int i = 0; i < K; ++i) a_s += a_of(i) * s[i];
      for (int i = 0; i < K; ++i) {
        s[i] = exp(to_double(w[at + i])) * s[i] + b_of(i) * a_s + to_double(k[at + i]) * to_double(v[at_v]);
        sum += s[i] * to_double(r[at + i]);
      }
      o[at_v] = slot < 0 ? 0.0 : sum * static_cast<f64>(scale);
      if (SLOTS == Slots::token && slot >= 0 && state_out_indices[t] >= 0) {
        for (int i = 0; i < K; ++i) final_state[state_at(state_out_indices[t], i)] = s[i];
      }
    }
    if (SLOTS != Slots::token && final_state && slot >= 0) {
      for (int i = 0; i < K; ++i) final_state[state_at(slot, i)] = s[i];
    }
  }
}

template <typename T, int K, int V, Wkv7Form FORM, typename W, bool VARLEN, typename STATE, bool V_FIRST,
          Slots SLOTS>
__global__ void wkv7_recurrent(f64* o, const T* r, const W* w, const T* k, const T* v, const T* a,
                               i32 sequences, i64 length, i32 heads, const T* b, const T* kk, f32 scale,
                               const STATE* initial_state, f64* final_state, const i64* cu_seqlens,
                               const i32* state_indices, const u8* has_initial_state, i32 pool,
                               i64 stride_state, const i32* state_out_indices) {
  wkv7_steps<T, K, V, FORM, W, VARLEN, STATE, V_FIRST, SLOTS>(
      o, r, w, k, v, a, sequences, length, heads, b, kk, scale, initial_state, final_state, cu_seqlens,
      state_indices, has_initial_state, stride_state, state_out_indices);
}

}  // namespace reference
}  // namespace kiln

// Naive reference for dplr_chunk: the steps of wkv7_recurrent in double. A block has a head of a sequence, and a thread has
// a column of its state.
#include "recurrent/wkv7_recurrent.reference.cu"

namespace kiln {
namespace reference {

template <typename T, int K, int V, Wkv7Form FORM, typename W, bool VARLEN, typename STATE, bool V_FIRST,
          Slots SLOTS>
__global__ void dplr_chunk(f64* o, const T* r, const W* w, const T* k, const T* v, const T* a, i32 sequences,
                           i64 length, i32 heads, const T* b, const T* kk, f32 scale,
                           const STATE* initial_state, f64* final_state, const i64* cu_seqlens,
                           const i32* state_indices, const u8* has_initial_state, i32 pool,
                           i64 stride_state) {
  wkv7_steps<T, K, V, FORM, W, VARLEN, STATE, V_FIRST, SLOTS>(
      o, r, w, k, v, a, sequences, length, heads, b, kk, scale, initial_state, final_state, cu_seqlens,
      state_indices, has_initial_state, stride_state, nullptr);
}

}  // namespace reference
}  // namespace kiln

// Reference for attn_prefill and attn_sm90.
#include "attention/prefill/ragged_reference.cuh"

namespace kiln {
namespace reference {

template <typename T, int D, int DV, int GROUP, bool CAUSAL, bool WINDOW, bool SOFT_CAP, bool ALIBI,
          bool MASK, bool PAGED, bool SINK>
__global__ void attn_prefill(f64* o, const T* q, const T* k, const T* v, i32* plan, f32*, i32 workers,
                             i32 kv_heads, i32, i64 stride_o, i64 stride_o_head, i64 stride_q,
                             i64 stride_q_head, i64 stride_k, i64 stride_k_head, i64 stride_v,
                             i64 stride_v_head, f32 sm_scale, f64* lse, f32 soft_cap, i32 window_left,
                             const f32* alibi_slopes, const u8* mask, const i32* mask_indptr,
                             const i32* kv_indices, i32 page_size, i64 stride_k_page, i64 stride_v_page,
                             i32 window_right, const f32* sinks, i32) {
  ragged_attention<T, D, DV, GROUP, CAUSAL, WINDOW, SOFT_CAP, ALIBI, MASK, PAGED, SINK>(
      o, q, k, v, plan, workers, kv_heads, stride_o, stride_o_head, stride_q, stride_q_head, stride_k,
      stride_k_head, stride_v, stride_v_head, sm_scale, lse, soft_cap, window_left, alibi_slopes, mask,
      mask_indptr, kv_indices, page_size, stride_k_page, stride_v_page, window_right, sinks);
}

}  // namespace reference
}  // namespace kiln

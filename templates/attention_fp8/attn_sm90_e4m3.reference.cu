// Reference for attn_sm90_e4m3.
#include "attention/prefill/ragged_reference.cuh"

namespace kiln {
namespace reference {

template <int D, int DV, int GROUP, bool CAUSAL, bool WINDOW, bool SOFT_CAP, bool PAGED, bool SINK>
__global__ void attn_sm90_e4m3(f64* o, const e4m3* q, const e4m3* k, const e4m3* v, i32* plan, f32*,
                               i32 workers, i32 kv_heads, i32, i64 stride_o, i64 stride_o_head, i64 stride_q,
                               i64 stride_q_head, i64 stride_k, i64 stride_k_head, i64 stride_v,
                               i64 stride_v_head, f32 sm_scale, f64* lse, f32 soft_cap, i32 window_left,
                               const i32* kv_indices, i32 page_size, i64 stride_k_page, i64 stride_v_page,
                               i32 window_right, const f32* sinks, const f32* q_scale, const f32* k_scale,
                               const f32* v_scale, i64 stride_scale, i32) {
  ragged_attention<e4m3, D, DV, GROUP, CAUSAL, WINDOW, SOFT_CAP, false, false, PAGED, SINK>(
      o, q, k, v, plan, workers, kv_heads, stride_o, stride_o_head, stride_q, stride_q_head, stride_k,
      stride_k_head, stride_v, stride_v_head, sm_scale, lse, soft_cap, window_left, nullptr, nullptr, nullptr,
      kv_indices, page_size, stride_k_page, stride_v_page, window_right, sinks, q_scale, k_scale, v_scale,
      stride_scale);
}

}  // namespace reference
}  // namespace kiln

// Computes attention of a batch, ragged or paged, on Hopper: o = softmax(q k^T) v. See attention/prefill/hopper.cuh.
#include "attention/prefill/hopper.cuh"

namespace kiln {

template <typename T, int D, int DV, int GROUP, bool CAUSAL, bool WINDOW, bool SOFT_CAP, bool PAGED,
          bool SINK, int TILE_ROWS, int TILE_KV, int STAGES, int Q_TILES, bool TURNS>
__global__ void __launch_bounds__(TILE_ROWS * 2 + 128, 1)
    attn_sm90(const __grid_constant__ TensorMap map_k, const __grid_constant__ TensorMap map_v, T* o,
              const T* q, i32* plan, f32* workspace, i32 workers, i32 kv_heads, i64 stride_o,
              i64 stride_o_head, i64 stride_q, i64 stride_q_head, f32 sm_scale, f32* lse, f32 soft_cap,
              i32 window_left, const i32* kv_indices, i32 page_size, i32 box, i32 window_right,
              const f32* sinks, i32 tokens) {
  attention_on_hopper<T, T, D, DV, GROUP, CAUSAL, WINDOW, SOFT_CAP, PAGED, SINK, TILE_ROWS, TILE_KV, STAGES,
                      Q_TILES, TURNS>(map_k, map_v, o, q, plan, workspace, workers, kv_heads, stride_o,
                                      stride_o_head, stride_q, stride_q_head, sm_scale, lse, soft_cap,
                                      window_left, kv_indices, page_size, box, window_right, sinks, tokens,
                                      AttentionScales{});
}

}  // namespace kiln

// Naive reference for conv1d: the causal convolution in double. A block has a sequence, and a thread has a
// channel.
#include "recurrent/state_slots.cuh"

namespace kiln {
namespace reference {

template <typename T, int D, int W, bool SILU, typename STATE, bool TAPS_FIRST, bool VARLEN>
__global__ void conv1d(f64* out, const T* x, const T* weight, i32 tokens, i32 sequences, i64 stride_x,
                       i64 stride_out, const T* bias, f64* conv_state, const i64* cu_seqlens,
                       const i32* state_indices, const u8* has_initial_state, i32 pool, i64 stride_state,
                       const i32* state_out_indices) {
  const i64 n = blockIdx.x;
  if (n >= sequences) return;
  const i64 begin = VARLEN ? cu_seqlens[n] : n * (tokens / sequences),
            end = VARLEN ? cu_seqlens[n + 1] : begin + tokens / sequences;
  const i64 slot = state_indices ? state_indices[n] : n;
  const bool starts = conv_state && slot >= 0 && (!has_initial_state || has_initial_state[n] != 0);
  for (int d = threadIdx.x; d < D; d += blockDim.x) {
    f64 window[W] = {};  // the last W inputs, the oldest first
    const auto at = [&](i64 slot, int tap) {
      return slot * stride_state +
             (TAPS_FIRST ? static_cast<i64>(tap) * D + d : static_cast<i64>(d) * (W - 1) + tap);
    };
    for (int tap = 0; starts && tap < W - 1; ++tap) window[tap + 1] = conv_state[at(slot, tap)];
    for (i64 t = begin; t < end; ++t) {
      for (int tap = 0; tap + 1 < W; ++tap) window[tap] = window[tap + 1];
      window[W - 1] = to_double(x[t * stride_x + d]);
      f64 y = bias ? to_double(bias[d]) : 0.0;
      for (int tap = 0; tap < W; ++tap) y += to_double(weight[static_cast<i64>(d) * W + tap]) * window[tap];
      if (SILU) y /= 1.0 + exp(-y);
      out[t * stride_out + d] = slot < 0 ? 0.0 : y;
      if (conv_state && slot >= 0 && state_out_indices && state_out_indices[t] >= 0) {
        for (int tap = 0; tap < W - 1; ++tap) conv_state[at(state_out_indices[t], tap)] = window[tap + 1];
      }
    }
    if (conv_state && slot >= 0 && !state_out_indices && end > begin) {
      for (int tap = 0; tap < W - 1; ++tap) conv_state[at(slot, tap)] = window[tap + 1];
    }
  }
}

}  // namespace reference
}  // namespace kiln

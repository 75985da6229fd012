// Naive reference for rwkv7_shift_mix: token shift and its mixes in double. A block has a token; one more
// block for each sequence hands the cache on. Results are not rounded to the output's dtype.
#include "recurrent/sequences.cuh"

namespace kiln {
namespace reference {

template <typename T, int D, int OUTPUTS, bool VARLEN>
__global__ void rwkv7_shift_mix(f64* out, const T* x, const T* mu, i32 sequences, i64 length, i64 stride_x,
                                i64 stride_out, i64 stride_mix, const T* cache, f64* cache_out,
                                const i64* cu_seqlens) {
  const i64 tokens = VARLEN ? length : sequences * length, t = blockIdx.x;
  if (t >= tokens) {
    const i64 n = t - tokens;
    if (n >= sequences || !cache_out) return;
    const i64 begin = VARLEN ? cu_seqlens[n] : n * length, end = VARLEN ? cu_seqlens[n + 1] : begin + length;
    for (int i = threadIdx.x; i < D; i += blockDim.x)
      cache_out[n * D + i] = begin < end ? to_double(x[(end - 1) * stride_x + i])
                             : cache     ? to_double(cache[n * D + i])
                                         : 0.0;
    return;
  }
  i64 n = 0;
  while ((VARLEN ? cu_seqlens[n + 1] : (n + 1) * length) <= t) ++n;
  const bool first = t == (VARLEN ? cu_seqlens[n] : n * length);
  for (int i = threadIdx.x; i < D; i += blockDim.x) {
    const f64 v = to_double(x[t * stride_x + i]);
    const f64 before = !first  ? to_double(x[(t - 1) * stride_x + i])
                       : cache ? to_double(cache[n * D + i])
                               : 0.0;
    for (int j = 0; j < OUTPUTS; ++j)
      out[j * stride_mix + t * stride_out + i] = v + (before - v) * to_double(mu[j * D + i]);
  }
}

}  // namespace reference
}  // namespace kiln

// Naive reference for rwkv7_out: the output of RWKV7's time mix in double. A block has a token, and a thread
// has a head. Results are not rounded to the output's dtype.
#include "kiln/dtype.cuh"

namespace kiln {
namespace reference {

template <typename T, int D, bool NORM>
__global__ void rwkv7_out(f64* out, const T* o, const T* r, const T* k, const T* v, const T* g, const T* r_k,
                          i64 tokens, i32 heads, const T* norm_weight, const T* norm_bias, f32 eps) {
  const i64 token = blockIdx.x;
  if (token >= tokens) return;
  for (int h = threadIdx.x; h < heads; h += blockDim.x) {
    const i64 at = (token * heads + h) * D, of = static_cast<i64>(h) * D;
    f64 correction = 0, mean = 0, variance = 0;
    for (int i = 0; i < D; ++i) {
      correction += to_double(r[at + i]) * to_double(k[at + i]) * to_double(r_k[of + i]);
      mean += to_double(o[at + i]) / D;
    }
    for (int i = 0; i < D; ++i) variance += (to_double(o[at + i]) - mean) * (to_double(o[at + i]) - mean) / D;
    for (int i = 0; i < D; ++i) {
      f64 y = to_double(o[at + i]);
      if (NORM) {
        y = (y - mean) / sqrt(variance + static_cast<f64>(eps)) *
            (norm_weight ? to_double(norm_weight[of + i]) : 1.0);
        y += norm_bias ? to_double(norm_bias[of + i]) : 0.0;
      }
      out[at + i] = (y + correction * to_double(v[at + i])) * to_double(g[at + i]);
    }
  }
}

}  // namespace reference
}  // namespace kiln

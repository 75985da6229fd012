// Naive reference for rwkv7_kprep: the key preparation of RWKV7 in double. A block has a token, and a thread
// has a head. Results are not rounded to the output's dtype.
#include "kiln/dtype.cuh"

namespace kiln {
namespace reference {

template <typename T, int D, bool WITH_B, bool WITH_V>
__global__ void rwkv7_kprep(f64* k_out, f64* kk, const T* k, const T* a, const T* k_k, const T* k_a,
                            i64 tokens, i32 heads, f32 eps, f64* b, f64* v_out, const T* v, const T* v_first,
                            const T* v_rate) {
  const i64 token = blockIdx.x;
  if (token >= tokens) return;
  for (int h = threadIdx.x; h < heads; h += blockDim.x) {
    const i64 at = (token * heads + h) * D, of = static_cast<i64>(h) * D;
    f64 squares = 0;
    for (int i = 0; i < D; ++i) {
      const f64 x = to_double(k[at + i]) * to_double(k_k[of + i]);
      squares += x * x;
    }
    const f64 factor = 1.0 / sqrt(squares + static_cast<f64>(eps));
    for (int i = 0; i < D; ++i) {
      const f64 x = to_double(k[at + i]), rate = to_double(a[at + i]);
      k_out[at + i] = x * (1.0 + (rate - 1.0) * to_double(k_a[of + i]));
      kk[at + i] = x * to_double(k_k[of + i]) * factor;
      if (WITH_B) b[at + i] = kk[at + i] * rate;
      if (WITH_V) {
        const f64 own = to_double(v[at + i]);
        v_out[at + i] = own + (to_double(v_first[at + i]) - own) * to_double(v_rate[at + i]);
      }
    }
  }
}

}  // namespace reference
}  // namespace kiln

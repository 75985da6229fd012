// Naive reference for moe_place, in double: a block has a token, and a thread has a group of 128 elements. Results are not
// rounded to fp8, but they saturate.
#include "kiln/quantum.cuh"

namespace kiln {
namespace reference {

template <typename T, typename OUT, int H>
__global__ void moe_place(f64* out, const T* x, const i32* inverse, i32 /*places*/, i32 tokens, i32 k,
                          i64 stride_x, i64 stride_out, f64* out_scale, i64 stride_out_group) {
  const i64 token = blockIdx.x;
  if (token >= tokens) return;
  const auto value = [&](int i) { return to_double(x[token * stride_x + i]); };
  for (int first = threadIdx.x * 128; first < H; first += blockDim.x * 128) {
    const int last = first + 128 < H ? first + 128 : H;
    f64 scale = 1.0;
    if (is_fp8<OUT>) {
      f64 largest = 1e-10;
      for (int i = first; i < last; ++i) largest = fmax(largest, fabs(value(i)));
      scale = largest / 448.0;
    }
    for (int slot = 0; slot < k; ++slot) {
      const i64 place = inverse[token * k + slot];
      if (place < 0) continue;
      if (is_fp8<OUT>) out_scale[place + first / 128 * stride_out_group] = scale;
      for (int i = first; i < last; ++i) out[place * stride_out + i] = value(i) / scale;
    }
  }
}

}  // namespace reference
}  // namespace kiln

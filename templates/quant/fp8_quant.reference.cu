// Naive reference for fp8_quant: fp8 quantisation in double. A block of any size has a row, and a thread has
// a group. Results are not rounded to fp8, but they saturate. With POW2 scales are rounded to powers of two.
#include "kiln/dtype.cuh"
#include "kiln/quantum.cuh"

namespace kiln {
namespace reference {

template <typename T, int H, Scaling SCALING, typename OUT, typename SCALE, bool POW2, int GROUP>
__global__ void fp8_quant(f64* out, const T* x, i32 rows, i64 stride_x, i64 stride_out, const f32* scale,
                          f64* out_scale, i64 stride_out_scale, i64 stride_out_group, f32 eps,
                          const f32* amax, i32 parts) {
  const i64 row = blockIdx.x;
  if (row >= rows) return;
  const f64 largest = same<OUT, e4m3> ? 448.0 : 57344.0;
  const auto value = [&](int i) { return to_double(x[row * stride_x + i]); };
  const auto power = [](f64 s) {  // the smallest power of two that is not below s
    f64 p = 1.0;
    while (p < s) p *= 2.0;
    while (p * 0.5 >= s) p *= 0.5;
    return p;
  };

  constexpr int SPAN = GROUP > 0 ? GROUP : H;
  for (int span = threadIdx.x; span < H / SPAN; span += blockDim.x) {
    f64 s = scale ? static_cast<f64>(*scale) : 1.0;
    if (SCALING != Scaling::fixed) {
      f64 a = static_cast<f64>(eps);
      for (int i = 0; SCALING == Scaling::tensor && i < parts; ++i) a = fmax(a, static_cast<f64>(amax[i]));
      for (int i = span * SPAN; SCALING != Scaling::tensor && i < (span + 1) * SPAN; ++i)
        a = fmax(a, fabs(value(i)));
      s = POW2 ? power(a / largest) : a / largest;
      if (same<SCALE, f32> && (SCALING != Scaling::tensor || row == 0))
        out_scale[row * stride_out_scale + span * stride_out_group] = s;
      if (!same<SCALE, f32>) {
        f64* word = out_scale + 4 * (row * stride_out_scale + span / 4 * stride_out_group);
        word[span % 4] = 127.0 + log2(s);
        for (int i = span % 4 + 1; span == H / SPAN - 1 && i < 4; ++i) word[i] = 0.0;
      }
    }
    for (int i = span * SPAN; i < (span + 1) * SPAN; ++i)
      out[row * stride_out + i] = fmax(-largest, fmin(largest, value(i) / s));
  }
}

}  // namespace reference
}  // namespace kiln

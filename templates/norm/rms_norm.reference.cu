// Naive reference for rms_norm: an RMS normalisation in double.
//
// A block of any size takes one row. Results are not rounded to the output's dtype; fp8 saturation is kept.
#include "kiln/dtype.cuh"

namespace kiln {
namespace reference {

template <typename T, int H, bool FUSED_ADD, bool GEMMA, typename OUT>
__global__ void rms_norm(f64* out, const T* x, const T* w, i32 rows, i64 stride_x, i64 stride_out, f32 eps,
                         f64* residual, i64 stride_residual, const f32* scale) {
  __shared__ f64 partial[1024];
  const i64 row = blockIdx.x;
  if (row >= rows) return;
  const auto value = [&](int i) {
    const f64 v = to_double(x[row * stride_x + i]);
    return FUSED_ADD ? v + residual[row * stride_residual + i] : v;
  };

  f64 squares = 0;
  for (int i = threadIdx.x; i < H; i += blockDim.x) squares += value(i) * value(i);
  partial[threadIdx.x] = squares;
  __syncthreads();
  squares = 0;
  for (int i = 0; i < blockDim.x; ++i) squares += partial[i];

  const f64 factor = 1.0 / sqrt(squares / H + static_cast<f64>(eps));
  const f64 quantum = is_fp8<OUT> && scale ? static_cast<f64>(*scale) : 1.0;
  for (int i = threadIdx.x; i < H; i += blockDim.x) {
    const f64 v = value(i);
    if (FUSED_ADD) residual[row * stride_residual + i] = v;
    f64 y = v * factor * (to_double(w[i]) + (GEMMA ? 1.0 : 0.0)) / quantum;
    if (is_fp8<OUT>) {
      const f64 largest = same<OUT, e4m3> ? 448.0 : 57344.0;
      y = y > largest ? largest : y < -largest ? -largest : y;
    }
    out[row * stride_out + i] = y;
  }
}

}  // namespace reference
}  // namespace kiln

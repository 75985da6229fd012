// d = epilogue(a b^T) in double precision, one thread for each element.
#include "gemm/reference.cuh"

namespace kiln {
namespace reference {

template <typename T, typename OUT, int N, int K, Factors SCALES, bool BIAS, Activation ACT, bool GATED,
          bool RESIDUAL>
__global__ void gemm(double* d, const T* a, const T* b, i32 m, i64 stride_a, i64 stride_b, i64 stride_d,
                     i32 batch, i64 stride_a_batch, i64 stride_b_batch, i64 stride_d_batch,
                     const f32* scale_a, i64 stride_scale_a, const f32* scale_b, const OUT* bias,
                     const OUT* residual, i64 stride_residual, i64 stride_residual_batch) {
  const i64 row = static_cast<i64>(blockIdx.x) * 8 + threadIdx.y, column = blockIdx.y * 32 + threadIdx.x;
  const i64 z = blockIdx.z;
  if (row >= m || column >= N) return;
  const auto sum = [&](i64 n) {
    const T *x = a + z * stride_a_batch + row * stride_a, *w = b + z * stride_b_batch + n * stride_b;
    double total = 0;
    for (int k = 0; k < K; ++k) {
      double product = to_double(x[k]) * to_double(w[k]);
      if constexpr (SCALES == Factors::block)
        product *= static_cast<double>(scale_a[k / 128 * stride_scale_a + row]) *
                   scale_b[n / 128 * (K / 128) + k / 128];
      total += product;
    }
    if constexpr (SCALES == Factors::tensor) total *= static_cast<double>(*scale_a) * *scale_b;
    if constexpr (SCALES == Factors::row) total *= static_cast<double>(scale_a[row]) * scale_b[n];
    if constexpr (BIAS) total += to_double(bias[n]);
    return total;
  };
  double y = activated<ACT>(sum(column));
  if constexpr (GATED) y *= sum(N + column);
  if constexpr (RESIDUAL)
    y += to_double(residual[z * stride_residual_batch + row * stride_residual + column]);
  d[z * stride_d_batch + row * stride_d + column] = y;
}

}  // namespace reference
}  // namespace kiln

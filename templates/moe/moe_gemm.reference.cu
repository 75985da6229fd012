// Naive reference for moe_gemm: the product of a mixture of experts in double.
//
// A block takes 128 columns of a row of d, and a thread takes one of them. Results are not rounded to the output's dtype; fp8
// saturation is kept.
#include "moe/product_reference.cuh"

namespace kiln {
namespace reference {

template <typename T, typename OUT, int N, int K, int E, Layout LAYOUT, int BLOCK, Factors SCALES, bool GATED,
          Order ORDER, Activation ACT, bool BIAS, typename BIAS_T, Weight WEIGHT, bool PLACED_A,
          bool PLACED_D>
__global__ void moe_gemm(f64* d, const T* a, const T* b, const i32* expert_ids, const i32* sorted_token_ids,
                         const i32* num_tokens_post_padded, i32 rows, i32 k, i32 /*capacity*/, i64 stride_d,
                         i64 stride_a, i64 stride_b, i64 stride_b_expert, const f32* scale_a,
                         i64 stride_scale_a, i64 step_scale_a, const f32* scale_b, const BIAS_T* bias,
                         const f32* weights, f32 alpha, f32 limit, f64* scale_d, i64 stride_scale_d,
                         i64 step_scale_d) {
  // blockIdx.x is a place of sorted_token_ids or a row of d. Whole blocks of threads return here.
  i64 row = blockIdx.x;
  const i64 place = row;
  i32 expert;
  if constexpr (LAYOUT == Layout::routed) {
    if (row >= *num_tokens_post_padded) return;
    expert = expert_ids[row / BLOCK];
    row = sorted_token_ids[row];
    if (row < 0 || row >= rows) return;
  } else if constexpr (LAYOUT == Layout::contiguous) {
    expert = expert_ids[row / BLOCK * BLOCK];
  } else {
    expert = static_cast<i32>(row / rows);
    if (row % rows >= expert_ids[expert]) return;
  }
  const i64 of_a = PLACED_A ? place : LAYOUT == Layout::routed ? row / k : row;
  const i64 of_d = PLACED_D ? place : row;
  constexpr i64 B_COUNT = GATED ? 2 * N : N;
  const f64 weight = WEIGHT != Weight::none ? static_cast<f64>(weights[row]) : 1.0;

  const auto sum = [&](i64 n) {
    const T *x = a + of_a * stride_a, *w = b + expert * stride_b_expert + n * stride_b;
    f64 total = 0;
    for (int i = 0; i < K; ++i) {
      f64 product = to_double(x[i]) * to_double(w[i]);
      if constexpr (SCALES == Factors::block) {
        product *= static_cast<f64>(scale_a[of_a * stride_scale_a + i / 128 * step_scale_a]) *
                   scale_b[(expert * ceil_div(B_COUNT, 128) + n / 128) * ceil_div(K, 128) + i / 128];
      }
      total += product;
    }
    if constexpr (WEIGHT == Weight::product) total *= weight;
    if constexpr (BIAS) total += to_double(bias[expert * B_COUNT + n]);
    return total;
  };
  const i64 n = static_cast<i64>(blockIdx.y) * 128 + threadIdx.x;
  f64 y = 0;
  if (expert >= 0 && n < N) y = finished<N, GATED, ORDER, ACT, WEIGHT>(sum, n, weight, alpha, limit);
  if constexpr (is_fp8<OUT>) {
    __shared__ f64 magnitudes[128];
    magnitudes[threadIdx.x] = fabs(y);
    __syncthreads();
    f64 largest = 1e-10;
    for (int i = 0; i < 128; ++i) largest = fmax(largest, magnitudes[i]);
    const f64 scale = largest / 448.0;
    if (threadIdx.x == 0) scale_d[of_d * stride_scale_d + blockIdx.y * step_scale_d] = scale;
    y /= scale;
    y = y > 448.0 ? 448.0 : y < -448.0 ? -448.0 : y;
  }
  if (n < N) d[of_d * stride_d + n] = y;
}

}  // namespace reference
}  // namespace kiln

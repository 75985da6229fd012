// Naive reference for moe_gemm_w4a16: the product of a mixture of experts in double, by weights that are unpacked one by one.
//
// A block takes 128 columns of a row of d, and a thread takes one of them. Results are not rounded to the output's dtype.
#include "moe/product_reference.cuh"
#include "moe_four_bits/codes.cuh"

namespace kiln {
namespace reference {

// Returns a weight. `tile` is the first word of its tile of 16 rows and 64 of K; `zero` is for int4.
template <Codes CODES>
__device__ f64 unpacked(const i32* tile, int row, int at, int zero) {
  const int lane = row % 8 * 4 + at % 32 / 8, pair = at % 4 / 2 * 2 + row / 8, half = at % 2 * 16;
  const u32 word = tile[lane * 4 + at / 32 * 2 + at % 8 / 4];
  if constexpr (CODES == Codes::int4) return static_cast<int>(word >> (half + 4 * pair) & 15) - zero;
  constexpr int BITS[4] = {6, 9, 3, 0}, SIGN[4] = {15, 14, 12, 13};
  constexpr f64 VALUE[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const f64 value = VALUE[word >> (half + BITS[pair]) & 7];
  return word >> (half + SIGN[pair]) & 1 ? -value : value;
}

template <typename T, typename OUT, int N, int K, int E, int BLOCK, Codes CODES, int GROUP, typename S,
          bool ZEROS, bool GATED, Order ORDER, Activation ACT, bool BIAS, typename BIAS_T, Weight WEIGHT>
__global__ void moe_gemm_w4a16(f64* d, const T* a, const i32* b, const i32* expert_ids,
                               const i32* sorted_token_ids, const i32* num_tokens_post_padded, i32 rows,
                               i32 k, i32 /*capacity*/, i64 stride_d, i64 stride_a, const S* scale_b,
                               const u8* zero_b, const BIAS_T* bias, const f32* weights, f32 alpha,
                               f32 limit) {
  const i64 place = blockIdx.x;
  if (place >= *num_tokens_post_padded) return;
  const i64 row = sorted_token_ids[place];
  if (row < 0 || row >= rows) return;
  const i32 expert = expert_ids[place / BLOCK];
  constexpr i64 B_COUNT = GATED ? 2 * N : N, TILES_K = ceil_div(K, PACKED_K);
  constexpr i64 GROUPS = ceil_div(TILES_K * PACKED_K, GROUP);
  const f64 weight = WEIGHT != Weight::none ? static_cast<f64>(weights[row]) : 1.0;

  const auto sum = [&](i64 n) {
    const i64 tile = expert * (B_COUNT / PACKED_ROWS) + n / PACKED_ROWS;
    const int of_tile = static_cast<int>(n % PACKED_ROWS);
    f64 total = 0;
    for (int i = 0; i < K; ++i) {
      const i64 of_group = (tile * GROUPS + i / GROUP) * PACKED_ROWS + of_tile % 8 * 2 + of_tile / 8;
      const i32* codes = b + (tile * TILES_K + i / PACKED_K) * PACKED_WORDS;
      const f64 w = unpacked<CODES>(codes, of_tile, i % PACKED_K, ZEROS ? zero_b[of_group] : 8);
      total += to_double(a[row / k * stride_a + i]) * (w * to_double(scale_b[of_group]));
    }
    if constexpr (WEIGHT == Weight::product) total *= weight;
    if constexpr (BIAS) total += to_double(bias[expert * B_COUNT + n]);
    return total;
  };
  const i64 n = static_cast<i64>(blockIdx.y) * 128 + threadIdx.x;
  if (n >= N) return;
  d[row * stride_d + n] =
      expert < 0 ? 0.0 : finished<N, GATED, ORDER, ACT, WEIGHT>(sum, n, weight, alpha, limit);
}

}  // namespace reference
}  // namespace kiln

// d = epilogue(a b^T) with mma.sync, for every architecture from sm_80 on: the same call as the kernel for Hopper.
//
// A block makes 64 rows by 64 columns; with a gate, 32 columns and their gates.
#include "gemm/epilogue.cuh"
#include "gemm/portable.cuh"
#include "kiln/pdl.cuh"

namespace kiln {

template <typename T, typename OUT, int N, int K, typename Finish>
__global__ void __launch_bounds__(128)
    gemm_portable(OUT* d, const T* a, const T* b, i32 m, i64 stride_a, i64 stride_b, i64 stride_d, i32 batch,
                  i64 stride_a_batch, i64 stride_b_batch, i64 stride_d_batch, const f32* scale_a,
                  i64 stride_scale_a, const f32* scale_b, const OUT* bias, const OUT* residual,
                  i64 stride_residual, i64 stride_residual_batch) {
  constexpr bool GATED = Finish::gated;
  constexpr int WIDE = GATED ? 32 : 64;
  using Tile = PortableTile<T, K, Finish::scales == Factors::block>;
  __shared__ __align__(1024) typename Tile::Memory memory;

  const i64 first_row = static_cast<i64>(blockIdx.x) * Tile::ROWS;
  const int first_column = blockIdx.y * WIDE;
  a += blockIdx.z * stride_a_batch;
  b += blockIdx.z * stride_b_batch;
  pdl_launch_dependents();
  pdl_wait();

  f32 sums[8][4] = {};
  const auto row_a = [&](int i) {
    const i64 row = first_row + Tile::copied_row(i);
    return row < m ? OperandRow<T>{a + row * stride_a, true} : OperandRow<T>{a, false};
  };
  const auto row_b = [&](int i) {
    const int at = Tile::copied_row(i), column = first_column + at % WIDE;
    return column < N ? OperandRow<T>{b + (at / WIDE * N + column) * stride_b, true}
                      : OperandRow<T>{b, false};
  };
  const auto factor_a = [&](bool second, int block) {
    const i64 row = first_row + Tile::row() + (second ? 8 : 0);
    return row < m ? load_one(scale_a + block * stride_scale_a + row) : 0.0f;
  };
  const auto factor_b = [&](int j, int block) {
    const int row = first_column + j * 8 / WIDE * N;
    return load_one(scale_b + static_cast<i64>(row / 128) * ceil_div(K, 128) + block);
  };
  Tile::multiply(sums, memory, row_a, row_b, factor_a, factor_b);

  const Finish finish{scale_a, scale_b, bias, residual + blockIdx.z * stride_residual_batch, stride_residual};
  d += blockIdx.z * stride_d_batch;
#pragma unroll
  for (int j = 0; j < WIDE / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const i64 token = first_row + Tile::row() + i * 4;
      const int column = first_column + Tile::column(j);
      if (token >= m || column >= N) continue;
      f32 x[2] = {sums[j][i], sums[j][i + 1]}, up[2] = {};
      if constexpr (GATED) up[0] = sums[j + 4][i], up[1] = sums[j + 4][i + 1];
      finish.finish(x, up, token, column);
      store(d + token * stride_d + column, narrow<OUT>(x));
    }
  }
}

}  // namespace kiln

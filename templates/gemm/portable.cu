// d = epilogue(a b^T) with mma.sync, for every architecture from sm_80 on: the same call as the kernel for Hopper.
//
// A block of four warps makes 64 rows by 64 columns; with a gate, 32 columns and their gates. Each warp has 16 rows.
// Operands come by cp.async through a ring of stages. fp8 is widened to f16 on its way, which is exact.
#include "gemm/epilogue.cuh"
#include "kiln/copy_async.cuh"
#include "kiln/mma.cuh"
#include "kiln/pdl.cuh"
#include "kiln/swizzle.cuh"

namespace kiln {

// The type that the tensor cores multiply.
template <typename T>
struct Multiplied {
  using type = T;
};
template <>
struct Multiplied<e4m3> {
  using type = f16;
};

template <typename T, typename OUT, int N, int K, typename Finish>
__global__ void __launch_bounds__(128)
    gemm_portable(OUT* d, const T* a, const T* b, i32 m, i64 stride_a, i64 stride_b, i64 stride_d, i32 batch,
                  i64 stride_a_batch, i64 stride_b_batch, i64 stride_d_batch, const f32* scale_a,
                  i64 stride_scale_a, const f32* scale_b, const OUT* bias, const OUT* residual,
                  i64 stride_residual, i64 stride_residual_batch) {
  constexpr bool FP8 = sizeof(T) == 1, GATED = Finish::gated, BLOCKWISE = Finish::scales == Factors::block;
  constexpr int STAGES = 3, BK = 64, STEPS = static_cast<int>(ceil_div(K, BK)), WIDE = GATED ? 32 : 64;
  using Layout = Swizzled<128>;
  using Half = typename Multiplied<T>::type;
  __shared__ __align__(1024) u8 tiles[STAGES][2][64 * 128];

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 first_row = static_cast<i64>(blockIdx.x) * 64;
  const int first_column = blockIdx.y * WIDE;
  a += blockIdx.z * stride_a_batch;
  b += blockIdx.z * stride_b_batch;
  pdl_launch_dependents();
  pdl_wait();

  const auto fill = [&](int step) {
    if (step < STEPS) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {  // 16 bytes each of both tiles, first of a
        const int row = threadIdx.x / 8 + i % 4 * 16, chunk = threadIdx.x % 8, k = step * BK + chunk * 8;
        const u32 to = shared_address(tiles[step % STAGES][i / 4]) + Layout::offset(row, chunk);
        const int of_b = GATED && row >= 32 ? N + first_column + row - 32 : first_column + row;
        const bool exists = k < K && (i < 4 ? first_row + row < m : GATED || of_b < N) &&
                            (i < 4 || !GATED || first_column + row % 32 < N);
        const T* from = !exists ? a : i < 4 ? a + (first_row + row) * stride_a + k : b + of_b * stride_b + k;
        if constexpr (FP8) {
          f32 wide[8] = {};
          if (exists) widen(load<8>(from), wide);
          const Vec<f16, 8> v = narrow<f16>(wide);
          asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.word[0]), "r"(v.word[1]),
                       "r"(v.word[2]), "r"(v.word[3])
                       : "memory");
        } else {
          copy_async_or_zero(to, from, exists);
        }
      }
    }
    copy_async_commit();
  };

  f32 sums[8][4] = {},
      part[8][4] = {};  // eight columns by eight; with scales of blocks, `part` sums 128 of K
  const int row = warp * 16 + lane / 4;
  for (int step = 0; step < STAGES - 1; ++step) fill(step);
  for (int step = 0; step < STEPS; ++step) {
    copy_async_wait<STAGES - 2>();
    __syncthreads();
    fill(step + STAGES - 1);
    const u32 of_a = shared_address(tiles[step % STAGES][0]), of_b = shared_address(tiles[step % STAGES][1]);
#pragma unroll
    for (int k = 0; k < BK / 16; ++k) {
      u32 left[4];
      load_matrices(left, of_a + Layout::offset(warp * 16 + lane % 16, 2 * k + lane / 16));
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        u32 right[4];
        load_matrices(right, of_b + Layout::offset(j * 8 + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
        mma<Half>(BLOCKWISE ? part[j] : sums[j], left, right[0], right[1]);
        mma<Half>(BLOCKWISE ? part[j + 1] : sums[j + 1], left, right[2], right[3]);
      }
    }
    if (BLOCKWISE && (step % 2 == 1 || step == STEPS - 1)) {
      const f32* of_rows = scale_a + step / 2 * stride_scale_a + first_row;
      const f32 up = first_row + row < m ? load_one(of_rows + row) : 0.0f;
      const f32 down = first_row + row + 8 < m ? load_one(of_rows + row + 8) : 0.0f;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int of_b_row = GATED && j >= 4 ? N + first_column : first_column;
        const f32 factor = load_one(scale_b + static_cast<i64>(of_b_row / 128) * ceil_div(K, 128) + step / 2);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[j][i] += part[j][i] * ((i < 2 ? up : down) * factor);
          part[j][i] = 0.0f;
        }
      }
    }
  }

  const Finish finish{scale_a, scale_b, bias, residual + blockIdx.z * stride_residual_batch, stride_residual};
  d += blockIdx.z * stride_d_batch;
#pragma unroll
  for (int j = 0; j < WIDE / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const i64 token = first_row + row + i * 4;
      const int column = first_column + j * 8 + lane % 4 * 2;
      if (token >= m || column >= N) continue;
      f32 x[2] = {sums[j][i], sums[j][i + 1]}, up[2] = {};
      if constexpr (GATED) up[0] = sums[j + 4][i], up[1] = sums[j + 4][i + 1];
      finish.finish(x, up, token, column);
      store(d + token * stride_d + column, narrow<OUT>(x));
    }
  }
}

}  // namespace kiln

// The product of a mixture of experts with mma.sync, for every architecture from sm_80 on: the same call as the kernel for
// Hopper.
//
// A block of threads takes up to 64 rows of one block of rows. It makes 64 columns; with a gate, 32 columns and their gates.
// For fp8 results it makes the 128 columns that share a scale, in parts of as many columns as otherwise. Four threads of a
// warp have all results of a row, so they find its largest magnitude by shuffles.
#include "gemm/epilogue.cuh"
#include "gemm/portable.cuh"
#include "kiln/pdl.cuh"
#include "kiln/quantum.cuh"
#include "moe/experts.cuh"

namespace kiln {

template <typename T, typename OUT, int N, int K, int E, Layout LAYOUT, int BLOCK, Factors SCALES,
          typename Finish, bool PLACED_A, bool PLACED_D>
__global__ void __launch_bounds__(128, 2)  // the smallest SM has shared memory for two blocks
    moe_gemm_portable(OUT* d, const T* a, const T* b, const i32* expert_ids, const i32* sorted_token_ids,
                      const i32* num_tokens_post_padded, i32 rows, i32 k, i32 /*capacity*/, i64 stride_d,
                      i64 stride_a, i64 stride_b, i64 stride_b_expert, const f32* scale_a, i64 stride_scale_a,
                      i64 step_scale_a, const f32* scale_b, decltype(Finish::bias) bias, const f32* weights,
                      f32 alpha, f32 limit, f32* scale_d, i64 stride_scale_d, i64 step_scale_d) {
  constexpr bool GATED = Finish::gated, QUANTISED = is_fp8<OUT>;
  constexpr int WIDE = GATED ? 32 : 64, PARTS = QUANTISED ? 128 / WIDE : 1;
  using Tile = PortableTile<T, K, SCALES == Factors::block>;
  __shared__ __align__(1024) typename Tile::Memory memory;
  pdl_launch_dependents();
  pdl_wait();

  const Routing<LAYOUT, BLOCK, E> routing{expert_ids, sorted_token_ids, num_tokens_post_padded, rows};
  if (static_cast<i32>(blockIdx.x) >= routing.blocks()) return;
  const ExpertRows block = routing.at(blockIdx.x);
  const int first = blockIdx.z * Tile::ROWS;
  if (first >= block.count) return;

  // The rows of d whose results this thread has, and the rows of a of which it copies a part; -1: none.
  const auto row_of_a = [&](int place) {
    const i32 row = routing.row(block, place);
    if (row < 0 || LAYOUT != Layout::routed) return row;
    return PLACED_A ? block.first + place : row / k;
  };
  const auto row_of_d = [&](int place) {
    const i32 row = routing.row(block, place);
    return PLACED_D && row >= 0 ? block.first + place : row;
  };
  const int place = first + Tile::row();  // and the one 8 places after it
  const i32 own[2] = {row_of_d(place), row_of_d(place + 8)};
  const i32 scaled[2] = {row_of_a(place), row_of_a(place + 8)};
  i32 copied[Tile::COPIES];
#pragma unroll
  for (int i = 0; i < Tile::COPIES; ++i) copied[i] = row_of_a(first + Tile::copied_row(i));

  f32 results[PARTS][WIDE / 8][4] = {};  // zeros without an expert
  const int first_column = blockIdx.y * (PARTS * WIDE);
  if (block.expert >= 0) {
    const Finish finish{bias, alpha, limit};
    f32 weight[2] = {1.0f, 1.0f};  // of own
    for (int i = 0; Finish::weighted && i < 2; ++i) {
      if (own[i] >= 0) weight[i] = load_one(weights + own[i]);
    }
    b += block.expert * stride_b_expert;
#pragma unroll 1
    for (int part = 0; part < PARTS; ++part) {
      const int part_column = first_column + part * WIDE;
      f32 sums[8][4] = {};
      const auto row_a = [&](int i) {
        return copied[i] >= 0 ? OperandRow<T>{a + copied[i] * stride_a, true} : OperandRow<T>{a, false};
      };
      const auto row_b = [&](int i) {
        const int at = Tile::copied_row(i), column = part_column + at % WIDE;
        return column < N ? OperandRow<T>{b + (at / WIDE * N + column) * stride_b, true}
                          : OperandRow<T>{b, false};
      };
      const auto factor_a = [&](bool second, int step) {
        const i32 row = scaled[second];
        return row >= 0 ? load_one(scale_a + row * stride_scale_a + step * step_scale_a) : 0.0f;
      };
      const auto factor_b = [&](int j, int step) {
        const i64 row =
            block.expert * ceil_div(GATED ? 2 * N : N, 128) + (part_column + j * 8 / WIDE * N) / 128;
        return load_one(scale_b + row * ceil_div(K, 128) + step);
      };
      if (part > 0) __syncthreads();
      Tile::multiply(sums, memory, row_a, row_b, factor_a, factor_b);
#pragma unroll
      for (int j = 0; j < WIDE / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          const int column = part_column + Tile::column(j);
          if (own[i / 2] < 0 || column >= N) continue;
          f32 x[2] = {sums[j][i], sums[j][i + 1]}, other[2] = {};
          if constexpr (GATED) other[0] = sums[j + 4][i], other[1] = sums[j + 4][i + 1];
          finish.finish(x, other, block.expert, weight[i / 2], column);
#pragma unroll
          for (int p = 0; p < PARTS; ++p) {  // constant indices keep the results in registers
            if (p == part) results[p][j][i] = x[0], results[p][j][i + 1] = x[1];
          }
        }
      }
    }
  }

#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const i64 row = own[i / 2];
    f32 quantum = 1.0f;
    if constexpr (QUANTISED) {
      f32 most = 0.0f;
#pragma unroll
      for (int j = 0; j < PARTS * WIDE / 8; ++j) {
        const f32(&x)[4] = results[j / (WIDE / 8)][j % (WIDE / 8)];
        most = fmaxf(most, fmaxf(fabsf(x[i]), fabsf(x[i + 1])));
      }
      const f32 scale = scale_of<OUT, false>(warp_reduce<4>(most, Max{}), 1e-10f);
      quantum = reciprocal_approx(scale);
      if (row >= 0 && threadIdx.x % 4 == 0)
        store(scale_d + row * stride_scale_d + first_column / 128 * step_scale_d, narrow<f32>({scale}));
    }
#pragma unroll
    for (int j = 0; j < PARTS * WIDE / 8; ++j) {
      const int column = first_column + Tile::column(j);
      if (row < 0 || column >= N) continue;
      const f32(&x)[4] = results[j / (WIDE / 8)][j % (WIDE / 8)];
      store(d + row * stride_d + column, narrow<OUT>({x[i] * quantum, x[i + 1] * quantum}));
    }
  }
}

}  // namespace kiln

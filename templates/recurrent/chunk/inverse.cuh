// The inverse of I + A, for a strictly lower triangular A of 64 x 64, by the four warps of a warpgroup (sm_80 and newer).
//
// The matrix consists of blocks of 16 x 16, and warp i has the rows of block row i. With L the blocks of A below its
// diagonal blocks, and D the inverses of the diagonal blocks of I + A,
//
//     (I + A)^-1 = Z D,  Z = I - D L Z
//
// - Each warp computes D of its own rows by forward substitution in f32.
// - N = -D L needs no other warp. Then Z = I + N Z goes down the block rows.
// - Products of blocks run on tensor cores in TF32. Its roundings are an eighth of the bf16 roundings of the result.
#pragma once
#include "kiln/hopper/warpgroup.cuh"
#include "kiln/mma.cuh"

namespace kiln {

// Rows of 64 f32 in shared memory. The four more elements of a row keep reads of a column free of bank conflicts.
using ChunkMatrix = f32[64][68];

// A block of 16 x 16 as the left operand of a product: its columns 0 to 7, and 8 to 15.
struct LeftBlock {
  f32 half[2][4];
};

// d += left * block, where d has 16 columns. `block` is the first element of the right operand in shared memory, and is
// rounded.
__device__ __forceinline__ void multiply_block(f32 (&d)[8][4], int first, const LeftBlock& left,
                                               const f32* block) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const f32* const at = block + (k * 8 + 2 * t) * 68 + j * 8 + g;
      mma_tf32(d[first + j], left.half[k], at[0], at[68]);
    }
  }
}

// Returns block `k` of a warp's 16 rows, which lie in registers, as a left operand.
__device__ __forceinline__ LeftBlock left_operand(const f32 (&rows)[8][4], int k) {
  LeftBlock block;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const f32(&from)[4] = rows[2 * k + i];
    f32(&to)[4] = block.half[i];
    to[0] = round_to_tf32(from[0]), to[1] = round_to_tf32(from[2]);
    to[2] = round_to_tf32(from[1]), to[3] = round_to_tf32(from[3]);
  }
  return block;
}

// Replaces the diagonal block of I + A at `block`, of which A is given, by its inverse, rounded to TF32. All lanes of a warp call it.
__device__ __forceinline__ void invert_diagonal_block(f32* block) {
  const int lane = threadIdx.x % 32;
  int column = lane % 16;
  asm volatile(""
               : "+r"(column));  // otherwise 16 comparisons with it are made ahead of all chunks, and spilled
  f32 x[16];                     // a column of the inverse; both halves of the warp compute all 16 columns
#pragma unroll
  for (int r = 0; r < 16; ++r) {
    f32 sum = r == column ? 1.0f : 0.0f;
#pragma unroll
    for (int k = 0; k < r; k += 4) {
      const float4 a = *reinterpret_cast<const float4*>(block + r * 68 + k);
      const f32 row[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (k + i < r) sum = fmaf(-row[i], x[k + i], sum);
      }
    }
    x[r] = sum;
  }
  __syncwarp();  // all lanes have read A
#pragma unroll
  for (int r = 0; r < 8; ++r)
    block[(r + lane / 16 * 8) * 68 + column] = round_to_tf32(lane < 16 ? x[r] : x[r + 8]);
}

// Replaces the warp's rows of A by its rows of (I + A)^-1. A thread has elements as a wgmma gives them: rows[j] has columns
// 8j to 8j + 7. Columns right of the diagonal blocks need not be set, and become zeros. All threads of the warpgroup call
// it; `barrier` is a barrier of theirs, and `shared` is theirs until they meet again after the call.
__device__ __forceinline__ void invert_unit_lower(f32 (&rows)[8][4], ChunkMatrix& shared, int barrier) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32 % 4, 0);
  f32* const own = shared[warp * 16];
  const auto place = [&](int j, int h) {
    return reinterpret_cast<float2*>(own + (g + h * 8) * 68 + j * 8 + t * 2);
  };
  const auto put = [&](int block, auto round) {
#pragma unroll
    for (int j = 2 * block; j < 2 * block + 2; ++j) {
      *place(j, 0) = make_float2(round(rows[j][0]), round(rows[j][1]));
      *place(j, 1) = make_float2(round(rows[j][2]), round(rows[j][3]));
    }
  };
  const auto rounded = [](f32 x) { return round_to_tf32(x); };
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (k < warp) put(k, rounded);
    if (k == warp) put(k, [](f32 x) { return x; });
  }
  __syncwarp();
  invert_diagonal_block(own + warp * 16);
  __syncwarp();

  LeftBlock left;  // -D
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float2 up = *place(2 * warp + i, 0), down = *place(2 * warp + i, 1);
    left.half[i][0] = -up.x, left.half[i][1] = -down.x, left.half[i][2] = -up.y, left.half[i][3] = -down.y;
  }
#pragma unroll
  for (int k = 0; k < 3; ++k) {  // N = -D L
    if (k < warp) {
#pragma unroll
      for (int i = 0; i < 8; ++i) rows[2 * k + i / 4][i % 4] = 0.0f;
      multiply_block(rows, 2 * k, left, own + k * 16);
    }
  }
  __syncwarp();  // all lanes have read L
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    if (k < warp) put(k, rounded);
  }
  sync_threads(barrier, 128);

  // Z = N + N Z. Block row 1 is ready, and block row 2 needs one more product, which block row 3 waits for.
  if (warp == 2) {
    multiply_block(rows, 0, left_operand(rows, 1), shared[16]);
    put(0, rounded);
  }
  if (warp == 3) {
    left = left_operand(rows, 2);
    multiply_block(rows, 0, left_operand(rows, 1), shared[16]);
    multiply_block(rows, 2, left, shared[32] + 16);
  }
  sync_threads(barrier, 128);
  if (warp == 3) multiply_block(rows, 0, left, shared[32]);

#pragma unroll
  for (int k = 0; k < 4; ++k) {  // Z D
    if (k < warp) {
      left = left_operand(rows, k);
#pragma unroll
      for (int i = 0; i < 8; ++i) rows[2 * k + i / 4][i % 4] = 0.0f;
      multiply_block(rows, 2 * k, left, shared[k * 16] + k * 16);
    } else {
#pragma unroll
      for (int j = 2 * k; j < 2 * k + 2; ++j) {
        const float2 up = k == warp ? *place(j, 0) : make_float2(0.0f, 0.0f);
        const float2 down = k == warp ? *place(j, 1) : make_float2(0.0f, 0.0f);
        rows[j][0] = up.x, rows[j][1] = up.y, rows[j][2] = down.x, rows[j][3] = down.y;
      }
    }
  }
}

}  // namespace kiln

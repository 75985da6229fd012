// Matrices of 16 x 16 tokens of a warp, as mma() has its results: [i] has columns 8i to 8i + 7.
#pragma once
#include "dplr/memory.cuh"
#include "kiln/mma.cuh"

namespace kiln {

// Writes a matrix in the order of dplr_square().
template <typename T>
__device__ __forceinline__ void put_square(T* square, const f32 (&d)[2][4]) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  u8* const bytes = reinterpret_cast<u8*>(square) + t * 4;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      *reinterpret_cast<u32*>(bytes + dplr_square(g + h * 8, n)) = pack<T>(d[n][h * 2], d[n][h * 2 + 1]);
  }
}

inline constexpr int DPLR_INVERSE_PITCH = 20;  // floats of a row of the memory of invert_square()

// Computes (I - AB)^-1 in blocks of 8 x 8. D and E are the inverses of the diagonal blocks, in f32. With C the lower left
// block of AB, that of the inverse is E C D, in TF32. The upper right block is 0. REQUIRES: AB is 0 on the diagonal and
// above, and `block` is shared memory of the warp, 16 rows of DPLR_INVERSE_PITCH floats, aligned to 16 bytes. The warp must
// meet before the block is used for other things.
__device__ __forceinline__ void invert_square(f32 (&inverse)[2][4], const f32 (&ab)[2][4], f32* block) {
  int thread = static_cast<int>(threadIdx.x);
  asm volatile("" : "+r"(thread));  // g and t are computed here, and need no register while the products run
  const int lane = thread % 32, g = lane / 4, t = lane % 4;
  const auto place = [&](int row, int column) { return block + row * DPLR_INVERSE_PITCH + column; };
  const auto pair = [&](int row, int column) { return reinterpret_cast<float2*>(place(row, column)); };
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int h = 0; h < 2; ++h) *pair(g + h * 8, n * 8 + t * 2) = make_float2(ab[n][h * 2], ab[n][h * 2 + 1]);
  }
  __syncwarp();
  const int column = lane % 8,
            first = lane / 8 % 2 * 8;  // a lane has a column of D or E; two lanes have the same
  f32 x[8];
#pragma unroll
  for (int r = 0; r < 8; ++r) {
    f32 sum = r == column ? 1.0f : 0.0f;
#pragma unroll
    for (int k = 0; k < r; k += 4) {
      const float4 a = *reinterpret_cast<const float4*>(place(first + r, first + k));
      const f32 row[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (k + i < r) sum = fmaf(row[i], x[k + i], sum);
      }
    }
    x[r] = sum;
  }
  __syncwarp();  // all lanes have read the diagonal blocks
  if (lane < 16) {
#pragma unroll
    for (int r = 0; r < 8; ++r) *place(first + r, first + column) = x[r];
  }
  __syncwarp();
  const float2 d = *pair(g, t * 2), e = *pair(8 + g, 8 + t * 2);
  const f32 left[4] = {round_to_tf32(e.x), 0.0f, round_to_tf32(e.y), 0.0f};
  f32 ec[4] = {}, ecd[4] = {};
  mma_tf32(ec, left, round_to_tf32(*place(8 + t * 2, g)), round_to_tf32(*place(9 + t * 2, g)));
  const f32 next[4] = {round_to_tf32(ec[0]), 0.0f, round_to_tf32(ec[1]), 0.0f};
  mma_tf32(ecd, next, round_to_tf32(*place(t * 2, g)), round_to_tf32(*place(t * 2 + 1, g)));
  const f32 result[2][4] = {{d.x, d.y, ecd[0], ecd[1]}, {0.0f, 0.0f, e.x, e.y}};
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) inverse[n][i] = result[n][i];
  }
}

}  // namespace kiln

// Results of a wgmma on their way to global memory: from registers into a tile for a TMA store (sm_90a).
#pragma once
#include "kiln/hopper/wgmma.cuh"
#include "kiln/mma.cuh"

namespace kiln {

// Stores four matrices of 8 x 8 elements of 2 bytes as load_matrices() loads them: lane l gives the address of row l % 8 of matrix
// l / 8. All lanes of a warp call it.
__device__ __forceinline__ void store_matrices(u32 address, const u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// Writes COLUMNS columns of a warpgroup's results to `tile`: `d` has them rounded to a type of 2 bytes, in pairs, and begins at
// these columns. The tile has 64 rows of COLUMNS elements with a swizzle as wide as a row: a [[tensormap]] with
// box = [COLUMNS, 64] and swizzle = 2 * COLUMNS. COLUMNS is 16, 32 or 64.
// REQUIRES: all threads of the warpgroup call it; `tile` is aligned to 1024 bytes.
template <int COLUMNS = 64>
__device__ __forceinline__ void store_packed_columns(void* tile, const u32* d) {
  static_assert(COLUMNS == 16 || COLUMNS == 32 || COLUMNS == 64, "a row has 32, 64 or 128 bytes");
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int row = warp * 16 + lane % 16;  // lanes name the rows of four matrices of 8 x 8: up, down, up, down
  const u32 start = shared_address(tile);
#pragma unroll
  for (int j = 0; j < COLUMNS / 16; ++j) {
    const u32 place = row * (COLUMNS * 2) + (2 * j + lane / 16) * 16;
    const u32 four[4] = {d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]};
    store_matrices(start + (place ^ place / 128 % (COLUMNS / 8) * 16), four);
  }
}

// Rounds COLUMNS columns of a warpgroup's results to T (f16 or bf16), and writes them as store_packed_columns() does.
template <typename T, int COLUMNS = 64>
__device__ __forceinline__ void store_columns(void* tile, const f32* d) {
  u32 packed[COLUMNS / 4];
#pragma unroll
  for (int i = 0; i < COLUMNS / 4; ++i) packed[i] = pack<T>(d[2 * i], d[2 * i + 1]);
  store_packed_columns<COLUMNS>(tile, packed);
}

}  // namespace kiln

// Loads rows of k or v from shared memory as the left operand of a warp's products. The products are the
// scores K Q^T and the outputs V^T P^T. The q heads that share a kv head are therefore the columns (8 of an
// mma), and all 16 rows of an mma are tokens or elements. fp8 becomes f16 on its way into the registers,
// which is exact.
#pragma once
#include "kiln/mma.cuh"
#include "kiln/swizzle.cuh"

namespace kiln {

// The type in which products of q (of T) with a cache of KV are computed.
template <typename T, typename KV>
struct ProductType {
  using Type = T;
};
template <typename T>
struct ProductType<T, e4m3> {
  using Type = f16;
};

// Returns two e4m3 from the lower or the upper half of `codes`, as f16 that are E4M3_UNIT times too small.
// The first value is in the lower half of the result. Below sm_89 integer instructions make the values, and
// NaN becomes 480.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 890
inline constexpr f32 E4M3_UNIT = 256.0f;
template <bool UPPER>
__device__ __forceinline__ u32 half_pair(u32 codes) {
  const u32 high = __byte_perm(codes, 0, UPPER ? 0x3424 : 0x1404);  // each code in the upper byte of a half
  return (high & 0x80008000u) | (high >> 1 & 0x3f803f80u);
}
#else
inline constexpr f32 E4M3_UNIT = 1.0f;
template <bool UPPER>
__device__ __forceinline__ u32 half_pair(u32 codes) {
  u32 pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<u16>(UPPER ? codes >> 16 : codes)));
  return pair;
}
#endif

// Returns the factor by which products with elements of the tile must be multiplied.
template <typename KV>
__device__ __forceinline__ constexpr f32 product_unit() {
  return sizeof(KV) == 1 ? E4M3_UNIT : 1.0f;
}

// A tile of rows of D elements of KV in shared memory.
template <typename KV, int D>
struct KvTile {
  static constexpr bool BYTE = sizeof(KV) == 1;
  static constexpr int BYTES = D * static_cast<int>(sizeof(KV)), CHUNKS = BYTES / 16;
  static constexpr int STEP = 2 * static_cast<int>(sizeof(KV));  // chunks that 32 elements take
  static_assert(D % 64 == 0, "D must be a multiple of 64");

  // Returns the bytes from the tile's start to a chunk of 16 bytes. Chunks lie as in Swizzled. Rows whose
  // size is not a multiple of 128 bytes are swizzled by pairs.
  static constexpr int MASK = BYTES % 128 == 0 ? 7 : 3;
  __device__ static constexpr u32 offset(int row, int chunk) {
    return row * BYTES + ((chunk ^ (MASK == 7 ? row & 7 : row >> 1 & 3)) * 16);
  }
  // Returns the offset of the chunk that lies `chunks` chunks after `offset` in the row.
  // REQUIRES: `chunks` is even, and `offset` is the offset of chunk 0 or 1.
  __device__ static constexpr u32 further(u32 offset, int chunks) {
    return (offset ^ ((chunks & MASK) * 16)) + (chunks & ~MASK) * 16;
  }

  // Both return a lane's place in 16 rows at element 0: key_place() for keys(), value_place() for values().
  __device__ static __forceinline__ u32 key_place(int lane) { return offset(lane % 16, lane / 16); }
  __device__ static __forceinline__ u32 value_place(int lane) {
    return BYTE ? key_place(lane) : offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  }

  // Loads the elements [32 n, 32 n + 32) of 16 rows as two operands [row][element]. `place` is the tile's
  // shared address plus key_place(). With fp8 the 16 elements of an operand have an order of their own.
  // DecodeQueries::take() gives the queries the same order.
  __device__ static __forceinline__ void keys(u32 (&a)[2][4], u32 place, int n) {
    if constexpr (BYTE) {
      u32 codes[4];
      load_matrices(codes, further(place, n * STEP));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        a[i][0] = half_pair<false>(codes[2 * i]), a[i][1] = half_pair<false>(codes[2 * i + 1]);
        a[i][2] = half_pair<true>(codes[2 * i]), a[i][3] = half_pair<true>(codes[2 * i + 1]);
      }
    } else {
      load_matrices(a[0], further(place, n * STEP));
      load_matrices(a[1], further(place, n * STEP + 2));
    }
  }

  // Loads the elements [32 n, 32 n + 32) of 16 rows as two operands [element][row]. `place` is the tile's
  // shared address plus value_place(). value_element() says which element a row of an operand has.
  __device__ static __forceinline__ void values(u32 (&a)[2][4], u32 place, int n) {
    if constexpr (BYTE) {
      u32 codes[4];  // pairs of neighbouring elements of two rows each
      load_matrices_transposed(codes, further(place, n * STEP));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int rows = 0; rows < 2; ++rows) {
          // The even elements of two rows, then the odd elements.
          const u32 sorted = __byte_perm(codes[2 * i + rows], 0, 0x3120);
          a[i][2 * rows] = half_pair<false>(sorted), a[i][2 * rows + 1] = half_pair<true>(sorted);
        }
      }
    } else {
      load_matrices_transposed(a[0], further(place, n * STEP));
      load_matrices_transposed(a[1], further(place, n * STEP + 2));
    }
  }
  // Returns the element of v that is in row `row` (0 to 15) of the m-th operand [element][row].
  __device__ static constexpr int value_element(int m, int row) {
    return 16 * m + (BYTE ? row % 8 * 2 + row / 8 : row);
  }
};

}  // namespace kiln

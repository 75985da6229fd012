// BlockCopy: all threads of a block copy rows of global memory to swizzled rows of shared memory (cp.async).
#pragma once
#include "kiln/copy_async.cuh"
#include "kiln/swizzle.cuh"

namespace kiln {

// Returns x as a value about which the compiler knows nothing. Every value derived from the result is
// therefore computed after this call, and occupies no registers before it.
__device__ __forceinline__ i32 fresh(i32 x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Each call copies the next ROWS rows of D elements. Eight threads share a row; in each step, each of them
// copies 16 bytes. A row takes padded_row(D) elements of the tile, and those after the first D are not written.
// REQUIRES: T has 2 bytes, D is a multiple of 8, WARPS is even, and ROWS is a multiple of 4 * WARPS. (The swizzle repeats every 8 rows, so the rows of one thread must be a multiple of 8 apart.)
template <typename T, int D, int ROWS, int WARPS>
struct BlockCopy {
  static constexpr int STEP = 4 * WARPS;  // rows that the block copies at once
  const T* next;                          // the thread's first element of the next ROWS rows
  i64 stride;

  // `first` is the first row, aligned to 16 bytes. `stride` counts elements from a row to the next, and is a
  // multiple of 8.
  __device__ __forceinline__ BlockCopy(const T* first, i64 stride)
      : next(first + threadIdx.x / 8 * stride + threadIdx.x % 8 * 8), stride(stride) {}

  // Begins to copy the next ROWS rows to the tile at the address `shared` (see Swizzled), and moves on to the
  // rows after them. Only the first `left` rows exist; the others are filled with zeros and not read. The
  // caller ends the group with copy_async_commit().
  __device__ __forceinline__ void operator()(u32 shared, i32 left) {
    const u32 thread = fresh(threadIdx.x),
              to = shared + Swizzled<2 * padded_row(D)>::offset(thread / 8, thread % 8);
    left -= thread / 8;
#pragma unroll
    for (int r = 0; r < ROWS; r += STEP, next += STEP * stride) {
#pragma unroll
      for (int c = 0; c < D; c += 64) {
        if (D - c >= 64 || static_cast<int>(thread % 8) < (D - c) / 8)
          copy_async_or_zero(to + (r * padded_row(D) + c) * 2, next + c, r < left);
      }
    }
  }
};

}  // namespace kiln

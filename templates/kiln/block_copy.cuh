// Rows of global memory copied to swizzled rows of shared memory by all threads of a block (cp.async).
#pragma once
#include "kiln/copy_async.cuh"
#include "kiln/swizzle.cuh"

namespace kiln {

// x, but unknown to the compiler: what is made of it is made here, and not held in registers from before.
__device__ __forceinline__ i32 fresh(i32 x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Copies of ROWS rows of D elements each, one block of rows after the other. Eight threads share a row, in steps of 128 bytes.
template <typename T, int D, int ROWS, int WARPS>
struct BlockCopy {
  static constexpr int STEP = 4 * WARPS;  // rows at once
  const T* next;                          // of the thread
  i64 stride;

  __device__ __forceinline__ BlockCopy(const T* first, i64 stride)
      : next(first + threadIdx.x / 8 * stride + threadIdx.x % 8 * 8), stride(stride) {}

  // `left` rows exist; what follows them becomes 0, and is not read.
  __device__ __forceinline__ void operator()(u32 shared, i32 left) {
    const u32 thread = fresh(threadIdx.x), to = shared + Swizzled<2 * D>::offset(thread / 8, thread % 8);
    left -= thread / 8;
#pragma unroll
    for (int r = 0; r < ROWS; r += STEP, next += STEP * stride) {
#pragma unroll
      for (int c = 0; c < D; c += 64) copy_async_or_zero(to + (r * D + c) * 2, next + c, r < left);
    }
  }
};

}  // namespace kiln

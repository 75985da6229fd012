// Prefix sums of integers over the lanes of a warp or the threads of a block.
#pragma once
#include "kiln/types.cuh"

namespace kiln {

// Returns the sum of v over the lanes up to this lane, inclusive, in aligned groups of LANES lanes. REQUIRES:
// LANES is a power of two up to 32; all 32 lanes of the warp call it.
template <int LANES>
__device__ __forceinline__ i32 warp_inclusive_sum(i32 v) {
  const int lane = threadIdx.x % LANES;  // blocks have one dimension
#pragma unroll
  for (int lanes = 1; lanes < LANES; lanes *= 2) {
    const i32 lower = __shfl_up_sync(0xffffffffu, v, lanes, LANES);
    if (lane >= lanes) v += lower;
  }
  return v;
}

// Returns the sum of v over the threads before this thread in a one-dimensional block of THREADS threads.
// REQUIRES: all threads of the block call it; `shared` has 32 elements. It has one barrier, so `shared` may
// be used again only after another barrier.
template <int THREADS>
__device__ __forceinline__ i32 block_exclusive_sum(i32 v, i32* shared) {
  static_assert(THREADS % 32 == 0 && THREADS <= 1024, "THREADS must be a multiple of 32, at most 1024");
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i32 inclusive = warp_inclusive_sum<32>(v);
  if (lane == 31) shared[warp] = inclusive;
  __syncthreads();
  return inclusive - v + __reduce_add_sync(0xffffffffu, lane < warp ? shared[lane] : 0);
}

}  // namespace kiln

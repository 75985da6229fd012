// Prefix sums of integers over the lanes of a warp or the threads of a block.
#pragma once
#include "kiln/types.cuh"

namespace kiln {

// Inclusive, over aligned groups of LANES (a power of two, <= 32). REQUIRES: all 32 lanes of the warp call it.
template <int LANES>
__device__ __forceinline__ i32 warp_inclusive_sum(i32 v) {
  const int lane = threadIdx.x % LANES;  // x alone numbers the lanes
#pragma unroll
  for (int lanes = 1; lanes < LANES; lanes *= 2) {
    const i32 lower = __shfl_up_sync(0xffffffffu, v, lanes, LANES);
    if (lane >= lanes) v += lower;
  }
  return v;
}

// Exclusive, over the THREADS of a one-dimensional block (whole warps); `total` is the sum of all. One barrier, so `shared` (THREADS / 32
// elements) may be used again only behind another.
template <int THREADS>
__device__ __forceinline__ i32 block_exclusive_sum(i32 v, i32* shared, i32& total) {
  constexpr int WARPS = THREADS / 32;
  static_assert(THREADS % 32 == 0 && THREADS <= 1024, "whole warps");
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i32 inclusive = warp_inclusive_sum<32>(v);
  if (lane == 31) shared[warp] = inclusive;
  __syncthreads();
  const i32 warps = warp_inclusive_sum<32>(lane < WARPS ? shared[lane] : 0);
  total = __shfl_sync(0xffffffffu, warps, 31);
  const i32 before = __shfl_sync(0xffffffffu, warps, warp == 0 ? 0 : warp - 1);
  return inclusive - v + (warp == 0 ? 0 : before);
}

}  // namespace kiln

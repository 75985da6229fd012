// Reductions over the threads of one row: a part of a warp, a warp, or a block. The order of the additions depends on the thread count
// alone, so a result is the same in every run; every thread receives it, bit for bit the same (the operators round symmetrically).
#pragma once
#include "kiln/math.cuh"
#include "kiln/types.cuh"

namespace kiln {

struct Sum {
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
  __device__ __forceinline__ float identity() const { return 0.0f; }
};

struct Max {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
  __device__ __forceinline__ float identity() const { return -infinity(); }
};

// Sum of 2^((v - max) * scale) over the values seen so far, and their maximum. Where all are -infinity, sum is 0.
struct MaxSum {
  float max;
  float sum;
};

// The maximum that may be subtracted from values: -infinity minus itself would be NaN.
__device__ __forceinline__ float finite_shift(float max) { return max == -infinity() ? 0.0f : max; }

struct MergeMaxSum {
  float scale;  // log2(e) / temperature, > 0
  // v.sum as it counts under a larger maximum.
  __device__ __forceinline__ float rescaled(MaxSum v, float max) const {
    return v.sum * exp2_approx((v.max - finite_shift(max)) * scale);
  }
  __device__ __forceinline__ MaxSum identity() const { return {-infinity(), 0.0f}; }
};

__device__ __forceinline__ float shuffle_xor(float v, int lanes) {
  return __shfl_xor_sync(0xffffffffu, v, lanes);
}

// Over aligned groups of LANES (a power of two, <= 32). REQUIRES: all 32 lanes of the warp call it.
template <int LANES, typename Op, typename V>
__device__ __forceinline__ V warp_reduce(V v, Op op) {
  static_assert(LANES >= 1 && LANES <= 32 && (LANES & (LANES - 1)) == 0, "LANES is a power of two up to 32");
#pragma unroll
  for (int lanes = LANES / 2; lanes > 0; lanes /= 2) v = op(v, shuffle_xor(v, lanes));
  return v;
}

// The maximum first, so that the tree of sums has no exponentials in it.
template <int LANES>
__device__ __forceinline__ MaxSum warp_reduce(MaxSum v, MergeMaxSum merge) {
  const float max = warp_reduce<LANES>(v.max, Max{});
  return {max, warp_reduce<LANES>(merge.rescaled(v, max), Sum{})};
}

// Elements of shared memory that row_reduce<THREADS> uses; at least 1, since an array needs one.
__host__ __device__ constexpr int reduce_slots(int threads) { return threads <= 32 ? 1 : threads / 32; }

// Over the THREADS of a row. Up to 32: groups inside a warp, no barrier. More (a multiple of 32): the whole block, `thread` in 0..THREADS-1;
// one barrier, so `shared` (reduce_slots(THREADS) elements) may be used again only behind another.
template <int THREADS, typename Op, typename V>
__device__ __forceinline__ V row_reduce(V v, Op op, V* shared, int thread) {
  if constexpr (THREADS <= 32) {
    return warp_reduce<THREADS>(v, op);
  } else {
    static_assert(THREADS % 32 == 0 && THREADS <= 1024, "a row has whole warps");
    constexpr int WARPS = THREADS / 32;
    constexpr int LANES = next_pow2(WARPS);
    v = warp_reduce<32>(v, op);
    if (thread % 32 == 0) shared[thread / 32] = v;
    __syncthreads();
    const int slot = thread % LANES;
    return warp_reduce<LANES>(slot < WARPS ? shared[slot] : op.identity(), op);
  }
}

}  // namespace kiln

// Reductions over the threads that share a row: a part of a warp, a whole warp, or a block.
//
// The order of the additions depends on the number of threads alone, so a result is the same in every run.
// Every thread receives the same bits, because op(a, b) rounds as op(b, a) does.
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

// The state of a softmax over the values seen so far: their maximum, and the sum of 2^((v - max) * scale).
// The sum is 0 while all values are -infinity.
struct MaxSum {
  float max;
  float sum;
};

// Returns the number to subtract from values whose maximum is `max`. It is `max`, or 0 if `max` is -infinity,
// because -infinity minus -infinity would be NaN.
__device__ __forceinline__ float finite_shift(float max) { return max == -infinity() ? 0.0f : max; }

// The operator that merges MaxSum pairs. It has no operator(); warp_reduce() has an overload for it.
struct MergeMaxSum {
  float scale;  // log2(e) / temperature, > 0
  // Returns v.sum relative to `max` instead of v.max. REQUIRES: max >= v.max.
  __device__ __forceinline__ float rescaled(MaxSum v, float max) const {
    return v.sum * exp2_approx((v.max - finite_shift(max)) * scale);
  }
  __device__ __forceinline__ MaxSum identity() const { return {-infinity(), 0.0f}; }
};

__device__ __forceinline__ float shuffle_xor(float v, int lanes) {
  return __shfl_xor_sync(0xffffffffu, v, lanes);
}

// Reduces v over each aligned group of LANES lanes (a power of two up to 32), and returns the result to each
// lane of the group. REQUIRES: all 32 lanes of the warp call it; `op` is commutative.
template <int LANES, typename Op, typename V>
__device__ __forceinline__ V warp_reduce(V v, Op op) {
  static_assert(LANES >= 1 && LANES <= 32 && (LANES & (LANES - 1)) == 0, "LANES is a power of two up to 32");
#pragma unroll
  for (int lanes = LANES / 2; lanes > 0; lanes /= 2) v = op(v, shuffle_xor(v, lanes));
  return v;
}

// The overload for MaxSum reduces the maximum first, so that the tree of sums has no exponentials in it.
template <int LANES>
__device__ __forceinline__ MaxSum warp_reduce(MaxSum v, MergeMaxSum merge) {
  const float max = warp_reduce<LANES>(v.max, Max{});
  return {max, warp_reduce<LANES>(merge.rescaled(v, max), Sum{})};
}

// The number of elements of shared memory that row_reduce<THREADS> uses. It is at least 1, because an array
// cannot be empty.
__host__ __device__ constexpr int reduce_slots(int threads) { return threads <= 32 ? 1 : threads / 32; }

// Reduces v over the THREADS threads of a row, and returns the result to each of them.
// - THREADS <= 32: a row is an aligned group of lanes, and the rules of warp_reduce() hold. There is no
//   barrier; `shared` and `thread` are not used.
// - THREADS > 32, a multiple of 32: the whole block is one row, and `thread` counts its threads from 0.
//   `shared` has reduce_slots(THREADS) elements. The call has one barrier and reads `shared` after it, so
//   `shared` may be written again only after another barrier.
template <int THREADS, typename Op, typename V>
__device__ __forceinline__ V row_reduce(V v, Op op, V* shared, int thread) {
  if constexpr (THREADS <= 32) {
    return warp_reduce<THREADS>(v, op);
  } else {
    static_assert(THREADS % 32 == 0 && THREADS <= 1024, "THREADS must be a multiple of 32, at most 1024");
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

// Sums of four columns over the lanes that share them: a recurrent state is spread over a warp with four columns in each lane, and its rows
// over groups of LANES neighbouring lanes. The order of the additions depends on LANES alone.
#pragma once
#include "kiln/reduce.cuh"

namespace kiln {

// Every lane of the group receives all four sums: rounds outside, so that the latencies of the four overlap. REQUIRES: as warp_reduce.
template <int LANES>
__device__ __forceinline__ void sum_columns(f32 (&v)[4]) {
#pragma unroll
  for (int lanes = LANES / 2; lanes > 0; lanes /= 2) {
#pragma unroll
    for (int c = 0; c < 4; ++c) v[c] += shuffle_xor(v[c], lanes);
  }
}

// Each lane receives the sum of one column, own_column(): 2 + 1 + 1 ... shuffles where sum_columns has 4 a round.
template <int LANES>
__device__ __forceinline__ int own_column(int lane) {
  return (lane & (LANES / 2) ? 2 : 0) + (lane & (LANES / 4) ? 1 : 0);
}
template <int LANES>
__device__ __forceinline__ f32 sum_own_column(const f32 (&v)[4], int lane) {
  static_assert(LANES >= 4, "a lane for each column");
  const bool high = lane & (LANES / 2), odd = lane & (LANES / 4);
  const f32 even_sum = (high ? v[2] : v[0]) + shuffle_xor(high ? v[0] : v[2], LANES / 2);
  const f32 odd_sum = (high ? v[3] : v[1]) + shuffle_xor(high ? v[1] : v[3], LANES / 2);
  f32 sum = (odd ? odd_sum : even_sum) + shuffle_xor(odd ? even_sum : odd_sum, LANES / 4);
#pragma unroll
  for (int lanes = LANES / 8; lanes > 0; lanes /= 2) sum += shuffle_xor(sum, lanes);
  return sum;
}

}  // namespace kiln

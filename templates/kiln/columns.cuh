// Sums over the lanes that share four columns: a recurrent state is spread over a warp with four columns in each lane, and its rows over
// groups of LANES neighbouring lanes. The order of the additions depends on LANES alone.
#pragma once
#include "kiln/reduce.cuh"

namespace kiln {

// The column, 0 to 3, whose sum a lane receives of sum_columns.
template <int LANES>
__device__ __forceinline__ int own_column(int lane) {
  return (lane & (LANES / 2) ? 2 : 0) + (lane & (LANES / 4) ? 1 : 0);
}

template <int LANES>
inline constexpr int sum_rounds = 1 + sum_rounds<LANES / 2>;
template <>
inline constexpr int sum_rounds<1> = 0;

// Of `all` each lane receives all four sums; of `own` one, in own[0]: of its own column. meanwhile(i) is work that does not wait for
// either, placed behind the shuffles of each of the sum_rounds<LANES> rounds. REQUIRES: as warp_reduce, LANES >= 4.
template <int LANES, int ROUND = 0, typename Meanwhile>
__device__ __forceinline__ void sum_columns(f32 (&all)[4], f32 (&own)[4], int lane, Meanwhile meanwhile) {
  static_assert(LANES >= 4, "a lane for each column");
  constexpr int DISTANCE = LANES >> (ROUND + 1), KEPT = ROUND == 0 ? 2 : 1;  // of own
  f32 other[4], other_own[2];
#pragma unroll
  for (int c = 0; c < 4; ++c) other[c] = shuffle_xor(all[c], DISTANCE);
#pragma unroll
  for (int c = 0; c < KEPT; ++c) {
    const f32 low = own[c], high = ROUND < 2 ? own[c + KEPT] : own[c];
    other_own[c] = shuffle_xor(lane & DISTANCE ? low : high, DISTANCE);
    own[c] = lane & DISTANCE ? high : low;
  }
  meanwhile(ROUND);
#pragma unroll
  for (int c = 0; c < 4; ++c) all[c] += other[c];
#pragma unroll
  for (int c = 0; c < KEPT; ++c) own[c] += other_own[c];
  if constexpr (DISTANCE > 1) sum_columns<LANES, ROUND + 1>(all, own, lane, meanwhile);
}

}  // namespace kiln

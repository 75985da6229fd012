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

// Of `all` each lane receives all four sums; of `own` one, in own[0]: of its own column. meanwhile(round) is work that does not wait for
// either, placed behind the shuffles of each of the sum_rounds<LANES> rounds. REQUIRES: as warp_reduce, LANES >= 4.
template <int LANES, typename Meanwhile>
__device__ __forceinline__ void sum_columns(f32 (&all)[4], f32 (&own)[4], int lane, Meanwhile meanwhile) {
  static_assert(LANES >= 4, "a lane for each column");
#pragma unroll
  for (int round = 0; round < sum_rounds<LANES>; ++round) {
    const int lanes = LANES >> (round + 1), kept = round == 0 ? 2 : 1;  // of own
    f32 other[4], other_own[2];
#pragma unroll
    for (int c = 0; c < 4; ++c) other[c] = shuffle_xor(all[c], lanes);
#pragma unroll
    for (int c = 0; c < kept; ++c) {
      const f32 low = own[c], high = round < 2 ? own[c + kept] : own[c];
      other_own[c] = shuffle_xor(lane & lanes ? low : high, lanes);
      own[c] = lane & lanes ? high : low;
    }
    meanwhile(round);
#pragma unroll
    for (int c = 0; c < 4; ++c) all[c] += other[c];
#pragma unroll
    for (int c = 0; c < kept; ++c) own[c] += other_own[c];
  }
}

}  // namespace kiln

// sum_beside() computes two sums over the lanes of a StateTile together, beside work that waits for
// neither sum.
#pragma once
#include "recurrent/state_tile.cuh"

namespace kiln {

// A sum over LANES lanes takes log2(LANES) rounds of shuffles.
template <int LANES>
inline constexpr int sum_rounds = 1 + sum_rounds<LANES / 2>;
template <>
inline constexpr int sum_rounds<1> = 0;

// Does TILE::sum(all) and own[0] = TILE::sum_of_one(own); the other elements of `own` are overwritten. Each
// of the sum_rounds<LANES> rounds calls meanwhile(round) after its shuffles are issued. That work fills the
// time until the shuffles arrive; the compiler does not move independent work there by itself. REQUIRES: all
// lanes of the warp call it; callers leave ROUND at 0.
template <typename TILE, int ROUND = 0, int COLS, typename Meanwhile>
__device__ __forceinline__ void sum_beside(f32 (&all)[COLS], f32 (&own)[COLS], Meanwhile meanwhile) {
  // If HALF is 0, `own` already has one column.
  constexpr int DISTANCE = TILE::APART << ROUND, HALF = COLS >> (ROUND + 1);
  if constexpr (DISTANCE < 32) {
    const bool upper = threadIdx.x & DISTANCE;
    f32 other[COLS], other_own[larger(HALF, 1)];
#pragma unroll
    for (int j = 0; j < COLS; ++j) other[j] = shuffle_xor(all[j], DISTANCE);
#pragma unroll
    for (int j = 0; j < larger(HALF, 1); ++j) {
      const f32 low = own[j], high = own[j + HALF];
      other_own[j] = shuffle_xor(upper ? low : high, DISTANCE);
      own[j] = upper ? high : low;
    }
    meanwhile(ROUND);
#pragma unroll
    for (int j = 0; j < COLS; ++j) all[j] += other[j];
#pragma unroll
    for (int j = 0; j < larger(HALF, 1); ++j) own[j] += other_own[j];
    sum_beside<TILE, ROUND + 1>(all, own, meanwhile);
  }
}

}  // namespace kiln

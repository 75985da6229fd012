// Chooses the largest of the values that lie in the registers of a team of lanes.
//
// The header has keys that order floats, a network that sorts the keys of a thread, and the largest key of a
// team. Nothing is rounded and ties keep their identity, so a choice is exact.
#pragma once
#include "kiln/math.cuh"
#include "kiln/types.cuh"

namespace kiln {

// Returns the key of v. Keys, as unsigned numbers, have the order of their floats. NaN counts as -infinity,
// and -0 as +0. No key is 0, so 0 may stand for "no value".
__device__ __forceinline__ u32 ordered_key(float v) {
  const u32 bits = __float_as_uint(fmaxf(v, -infinity()) + 0.0f);
  return bits ^ (static_cast<u32>(static_cast<i32>(bits) >> 31) | 0x80000000u);
}
// Returns the float of a key. REQUIRES: key is not 0.
__device__ __forceinline__ float key_value(u32 key) {
  return __uint_as_float(key ^ (key >> 31 ? 0x80000000u : 0xffffffffu));
}

// The comparators of Batcher's odd-even merge sort for N keys: 19 for 8 keys, 63 for 16. Source: Knuth, The
// Art of Computer Programming 3, 5.2.2, algorithm M. They are the comparators for next_pow2(N) keys without
// those comparators that touch a place from N on. The compiler's front end computes them; loops that find
// them would take the optimiser longer to unroll.
template <int N>
struct SortingNetwork {
  int count = 0;
  u8 first[N * N / 2 + 1] = {}, second[N * N / 2 + 1] = {};

  __host__ __device__ constexpr SortingNetwork() {
    for (int p = 1; p < N; p *= 2) {
      for (int k = p; k > 0; k /= 2) {
        for (int i = k % p; i + k < N; ++i) {
          if ((i - k % p) % (2 * k) >= k || i / (2 * p) != (i + k) / (2 * p)) continue;
          first[count] = static_cast<u8>(i);
          second[count++] = static_cast<u8>(i + k);
        }
      }
    }
  }
};

// Sorts the keys of a thread in descending order, with two instructions per comparator.
template <int N>
__device__ __forceinline__ void sort_descending(u32 (&key)[N]) {
  constexpr SortingNetwork<N> network;
#pragma unroll
  for (int i = 0; i < network.count; ++i) {
    u32 &high = key[network.first[i]], &low = key[network.second[i]];
    const u32 a = high, b = low;
    asm("max.u32 %0, %2, %3;\n\tmin.u32 %1, %2, %3;" : "=&r"(high), "=r"(low) : "r"(a), "r"(b));
  }
}

// Returns the largest key of this lane's team; teams are aligned and have LANES lanes.
// REQUIRES: LANES is a power of two up to 32; all 32 lanes of the warp call it.
template <int LANES>
__device__ __forceinline__ u32 team_max(u32 key) {
  if constexpr (LANES == 32) {
    return __reduce_max_sync(0xffffffffu, key);
  } else {
#pragma unroll
    for (int lanes = LANES / 2; lanes > 0; lanes /= 2)
      key = max(key, __shfl_xor_sync(0xffffffffu, key, lanes));
    return key;
  }
}

// Returns the mask of the lanes of the warp that have this lane's value, or 0 if that value is negative.
// REQUIRES: value < COUNT; all 32 lanes of the warp call it. If values differ, a ballot of each bit takes a
// fraction of the time of match.any.
template <int COUNT>
__device__ __forceinline__ u32 lanes_with_same(i32 value) {
  u32 lanes = __ballot_sync(0xffffffffu, value >= 0);
#pragma unroll
  for (int bit = 1; bit < COUNT; bit *= 2) {
    const u32 set = __ballot_sync(0xffffffffu, (value & bit) != 0);
    lanes &= (value & bit) != 0 ? set : ~set;
  }
  return value >= 0 ? lanes : 0u;
}

}  // namespace kiln

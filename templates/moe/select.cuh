// Choosing the largest of values that lie in the registers of a team of lanes: keys that order floats, a network that sorts the keys of a
// thread, the largest key of a team. Nothing is rounded and ties keep their identity, so a choice is exact.
#pragma once
#include "kiln/math.cuh"
#include "kiln/types.cuh"

namespace kiln {

// Keys compare as unsigned numbers like the floats that they come from: NaN as -infinity, -0 as +0. None is 0, which may stand for "no value".
__device__ __forceinline__ u32 ordered_key(float v) {
  const u32 bits = __float_as_uint(fmaxf(v, -infinity()) + 0.0f);
  return bits ^ (static_cast<u32>(static_cast<i32>(bits) >> 31) | 0x80000000u);
}
// REQUIRES: key is not 0.
__device__ __forceinline__ float key_value(u32 key) {
  return __uint_as_float(key ^ (key >> 31 ? 0x80000000u : 0xffffffffu));
}

// The comparators of Batcher's odd-even merge sort (Knuth, The Art of Computer Programming 3, 5.2.2 M) of next_pow2(N) keys, less those with a
// place behind the Nth: 19 for 8 keys, 63 for 16. Made by the front end: loops that find them take the optimiser longer to unroll.
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

// Sorts descending, in two instructions a comparator.
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

// The largest key of each aligned team of LANES (a power of two, <= 32). REQUIRES: all 32 lanes of the warp call it.
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

// The lanes of the warp that have the same value in 0..COUNT-1, as a mask; 0 for a lane with a negative one. A ballot of each bit takes a
// fraction of match.any's time where values differ. REQUIRES: all 32 lanes of the warp call it.
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

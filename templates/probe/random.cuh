// Counter-based random numbers: the value at (seed, index) depends on nothing else, so any launch geometry gives the same data.
#pragma once
#include "kiln/types.cuh"

namespace kiln {

// 64 mixed bits: the finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014), applied twice.
__device__ __forceinline__ u64 mix(u64 z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
__device__ __forceinline__ u64 random_bits(u64 seed, u64 index) {
  return mix(mix(seed + 0x9e3779b97f4a7c15ull) + (index + 1) * 0x9e3779b97f4a7c15ull);
}

// In (0, 1), 2^-23 apart; never 0, never 1.
__device__ __forceinline__ float unit(u32 bits) {
  return (static_cast<float>(bits >> 9) + 0.5f) * 1.1920928955078125e-7f;
}

// Mean 0, standard deviation 1 (Box and Muller, 1958); at most about 5.8 away from 0.
__device__ __forceinline__ float standard_normal(u64 bits) {
  return sqrtf(-2.0f * logf(unit(static_cast<u32>(bits)))) *
         cospif(2.0f * unit(static_cast<u32>(bits >> 32)));
}

}  // namespace kiln

// Counter-based random numbers: the value at (seed, index) depends on nothing else. Any launch geometry
// therefore gives the same data.
#pragma once
#include "kiln/types.cuh"

namespace kiln {

// Mixes 64 bits with the finaliser of SplitMix64.
// Source: Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014.
__device__ __forceinline__ u64 mix(u64 z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
// Returns 64 random bits: mix() is applied to the seed, then to the result plus a multiple of the index.
__device__ __forceinline__ u64 random_bits(u64 seed, u64 index) {
  return mix(mix(seed + 0x9e3779b97f4a7c15ull) + (index + 1) * 0x9e3779b97f4a7c15ull);
}

// Returns a float in (0, 1), never 0 and never 1; neighbouring values are 2^-23 apart.
__device__ __forceinline__ float unit(u32 bits) {
  return (static_cast<float>(bits >> 9) + 0.5f) * 1.1920928955078125e-7f;
}

// Returns a normal number with mean 0 and standard deviation 1, at most about 5.8 away from 0.
// Source: Box and Muller, 1958.
__device__ __forceinline__ float standard_normal(u64 bits) {
  return sqrtf(-2.0f * logf(unit(static_cast<u32>(bits)))) *
         cospif(2.0f * unit(static_cast<u32>(bits >> 32)));
}

}  // namespace kiln

// Addresses of shared memory as PTX instructions take them, and loads and stores of vectors there.
#pragma once
#include "kiln/vector.cuh"

namespace kiln {

__device__ __forceinline__ u32 shared_address(const void* p) {
  return static_cast<u32>(__cvta_generic_to_shared(p));
}

// Loads N elements. REQUIRES: p is in shared memory, aligned to min(16, N * sizeof(T)) bytes, and the vector
// has at least 2 bytes.
template <int N, typename T>
__device__ __forceinline__ Vec<T, N> load_shared(const T* p) {
  Vec<T, N> v;
  if constexpr (Vec<T, N>::BYTES >= 16) {
#pragma unroll
    for (int i = 0; i < Vec<T, N>::REGISTERS; i += 4) {
      const uint4 q = reinterpret_cast<const uint4*>(p)[i / 4];
      v.word[i] = q.x, v.word[i + 1] = q.y, v.word[i + 2] = q.z, v.word[i + 3] = q.w;
    }
  } else if constexpr (Vec<T, N>::BYTES == 8) {
    const uint2 q = *reinterpret_cast<const uint2*>(p);
    v.word[0] = q.x, v.word[1] = q.y;
  } else if constexpr (Vec<T, N>::BYTES == 4) {
    v.word[0] = *reinterpret_cast<const u32*>(p);
  } else {
    static_assert(Vec<T, N>::BYTES == 2, "a vector in shared memory must have at least 2 bytes");
    v.word[0] = *reinterpret_cast<const u16*>(p);
  }
  return v;
}

// Stores N floats. REQUIRES: p is in shared memory, aligned to 16 bytes; N is a multiple of 4.
template <int N>
__device__ __forceinline__ void store_shared(f32* p, const f32 (&v)[N]) {
#pragma unroll
  for (int i = 0; i < N; i += 4)
    reinterpret_cast<float4*>(p)[i / 4] = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
}

}  // namespace kiln

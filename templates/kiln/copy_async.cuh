// Copies from global to shared memory that occupy neither registers nor the thread that asks for them (cp.async), and vectors of shared memory.
#pragma once
#include "kiln/vector.cuh"

namespace kiln {

// Begins to copy N elements. REQUIRES: both addresses are aligned to min(16, N * sizeof(T)), which is 4, 8 or a multiple of 16 bytes.
template <int N, typename T>
__device__ __forceinline__ void copy_async(T* shared, const T* global) {
  constexpr int BYTES = N * static_cast<int>(sizeof(T));
  static_assert(BYTES == 4 || BYTES == 8 || BYTES % 16 == 0, "cp.async moves 4, 8 or 16 bytes");
  const u32 to = static_cast<u32>(__cvta_generic_to_shared(shared));
  const char* from = reinterpret_cast<const char*>(global);
  if constexpr (BYTES < 16) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES) : "memory");
  } else {
#pragma unroll
    for (int i = 0; i < BYTES; i += 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i), "l"(from + i) : "memory");
  }
}

// Ends a group of this thread's copies; an empty group counts, too.
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until all but the last PENDING groups of this thread have arrived. Other threads see them behind a barrier.
template <int PENDING>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// REQUIRES: p is shared memory, aligned to min(16, N * sizeof(T)) bytes.
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
    static_assert(Vec<T, N>::BYTES == 2, "at least 2 bytes");
    v.word[0] = *reinterpret_cast<const u16*>(p);
  }
  return v;
}

// REQUIRES: as load_shared; N is a multiple of 4.
template <int N>
__device__ __forceinline__ void store_shared(f32* p, const f32 (&v)[N]) {
#pragma unroll
  for (int i = 0; i < N; i += 4) reinterpret_cast<float4*>(p)[i / 4] = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
}

}  // namespace kiln

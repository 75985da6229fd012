// Copies from global to shared memory that do not pass through registers (cp.async), and vector loads of what they brought.
#pragma once
#include "kiln/vector.cuh"

namespace kiln {

// Starts a copy of 4, 8 or 16 bytes. REQUIRES: both addresses are aligned to BYTES.
template <int BYTES>
__device__ __forceinline__ void async_copy(void* shared, const void* global) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async moves 4, 8 or 16 bytes");
  const u32 to = static_cast<u32>(__cvta_generic_to_shared(shared));
  if constexpr (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(BYTES) : "memory");
  }
}

// Waits for all copies that this thread has started; a barrier then shows them to the others.
__device__ __forceinline__ void async_copy_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// REQUIRES: p is shared memory, aligned to N * sizeof(T) bytes: 4, 8 or 16.
template <int N, typename T>
__device__ __forceinline__ Vec<T, N> load_shared(const T* p) {
  Vec<T, N> v;
  constexpr int BYTES = Vec<T, N>::BYTES;
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "one access");
  if constexpr (BYTES == 16) {
    const uint4 w = *reinterpret_cast<const uint4*>(p);
    v.word[0] = w.x, v.word[1] = w.y, v.word[2] = w.z, v.word[3] = w.w;
  } else if constexpr (BYTES == 8) {
    const uint2 w = *reinterpret_cast<const uint2*>(p);
    v.word[0] = w.x, v.word[1] = w.y;
  } else {
    v.word[0] = *reinterpret_cast<const u32*>(p);
  }
  return v;
}

}  // namespace kiln

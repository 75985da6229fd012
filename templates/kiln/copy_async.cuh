// Copies from global to shared memory that occupy neither registers nor the thread that asks for them (cp.async).
#pragma once
#include "kiln/shared.cuh"

namespace kiln {

// Begins to copy N elements. REQUIRES: N * sizeof(T) is 4, 8 or a multiple of 16 bytes, and both addresses are aligned to it, or to 16.
template <int N, typename T>
__device__ __forceinline__ void copy_async(T* shared, const T* global) {
  constexpr int BYTES = N * static_cast<int>(sizeof(T));
  static_assert(BYTES == 4 || BYTES == 8 || BYTES % 16 == 0, "cp.async moves 4, 8 or 16 bytes");
  const u32 to = shared_address(shared);
  const char* from = reinterpret_cast<const char*>(global);
  if constexpr (BYTES < 16) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES) : "memory");
  } else {
#pragma unroll
    for (int i = 0; i < BYTES; i += 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i), "l"(from + i) : "memory");
  }
}

// Begins to copy 16 bytes, or to fill them with zeros where `exists` is false: then nothing is read. REQUIRES: aligned to 16 bytes.
__device__ __forceinline__ void copy_async_or_zero(u32 shared, const void* global, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(exists ? 16 : 0)
               : "memory");
}

// Ends a group of this thread's copies; an empty group counts, too.
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until all but the last PENDING groups of this thread have arrived. Other threads see them behind a barrier.
template <int PENDING>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

}  // namespace kiln

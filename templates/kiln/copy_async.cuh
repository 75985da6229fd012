// Asynchronous copies from global to shared memory (cp.async), which use no registers for the data.
//
// The thread that begins a copy does not wait for it. It ends a group of copies with copy_async_commit(), and
// waits for groups with copy_async_wait().
#pragma once
#include "kiln/shared.cuh"

namespace kiln {

// Begins to copy N elements. REQUIRES: N * sizeof(T) is 4, 8 or a multiple of 16 bytes; both addresses are
// aligned to min(16, N * sizeof(T)) bytes.
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

// Begins to copy 16 bytes. If `exists` is false, it fills them with zeros and reads nothing. `shared` is an
// address of shared_address(). REQUIRES: both addresses are aligned to 16 bytes.
__device__ __forceinline__ void copy_async_or_zero(u32 shared, const void* global, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(exists ? 16 : 0)
               : "memory");
}

// Makes a group of the copies that this thread has begun since its last call. An empty group counts too.
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all but the last PENDING groups of this thread have arrived. Other threads see their data only
// after a barrier that follows this wait.
template <int PENDING>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Makes one arrival at an mbarrier of kiln/mbarrier.cuh, once all copies have arrived that this thread has begun. A
// thread that waits for the phase then sees their data.
__device__ __forceinline__ void copy_async_arrive(void* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

}  // namespace kiln

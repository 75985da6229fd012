// Copies from global to shared memory that pass by the registers: a loop starts as many as it likes and waits for none of them.
#pragma once
#include "kiln/types.cuh"

namespace kiln {

// Starts to copy one element of 4 or 8 bytes. In order like load (kiln/vector.cuh); `to` may be read by this thread behind copies_wait().
template <typename T>
__device__ __forceinline__ void copy_async(T* to, const T* from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a copy has 4 or 8 bytes");
  const u32 address = static_cast<u32>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from), "n"(sizeof(T)) : "memory");
}

// Until all copies of this thread are there.
__device__ __forceinline__ void copies_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace kiln

// Warpgroups: four warps whose first thread's number is a multiple of 128. They share a wgmma, and may take registers
// from each other (sm_90a).
#pragma once
#include "kiln/types.cuh"

namespace kiln {

// Returns the number of this thread's warpgroup. The compiler knows that all lanes of a warp have the same.
__device__ __forceinline__ int warpgroup() {
  return __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
}

// Changes the registers of each thread of the warpgroup; all its threads call it. Warpgroups that give registers away
// call the first, so that others can take them: a kernel has one if and one else of roles, and the launch bounds say one
// block for each SM. REQUIRES: COUNT is a multiple of 8 from 24 to 240.
template <int COUNT>
__device__ __forceinline__ void give_registers_to() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void take_registers_to() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// A barrier of some warps of the block: waits until `threads` threads have called it with this id. REQUIRES: `id` is 1 to
// 15, because __syncthreads() has 0; all lanes of a warp call it.
__device__ __forceinline__ void sync_threads(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// Counts as a call of sync_threads(), and does not wait.
__device__ __forceinline__ void arrive_threads(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace kiln

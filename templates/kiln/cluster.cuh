// Thread block clusters (sm_90 and newer): a barrier over the cluster, and stores into another block's shared memory.
// Below sm_90 nothing here may be called; a template keeps its cluster size at 1 there.
#pragma once
#include "kiln/types.cuh"

namespace kiln {

__device__ __forceinline__ u32 cluster_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// All threads of all blocks arrive, then wait; the phases of one barrier follow each other. Shared memory written before the arrival is
// visible after the wait. The first phase also tells that every block of the cluster runs: before it no remote shared memory may be touched.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Stores v at `local`'s place in the shared memory of block `rank`.
__device__ __forceinline__ void cluster_store(float* local, u32 rank, float v) {
  const u32 address = static_cast<u32>(__cvta_generic_to_shared(local));
  asm volatile(
      "{\n\t"
      ".reg .b32 remote;\n\t"
      "mapa.shared::cluster.u32 remote, %0, %1;\n\t"
      "st.shared::cluster.f32 [remote], %2;\n\t"
      "}" ::"r"(address), "r"(rank), "f"(v)
      : "memory");
}
__device__ __forceinline__ void cluster_store(i32* local, u32 rank, i32 v) { cluster_store(reinterpret_cast<float*>(local), rank, __int_as_float(v)); }

}  // namespace kiln

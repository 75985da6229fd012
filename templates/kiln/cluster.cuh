// Thread block clusters (sm_90 and newer): a barrier over the cluster, and stores into another block's shared memory.
// Below sm_90 nothing here may be called; a template keeps its cluster size at 1 there.
#pragma once
#include "kiln/mbarrier.cuh"

namespace kiln {

__device__ __forceinline__ u32 cluster_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// All threads of all blocks arrive, then wait; the phases of one barrier follow each other. Shared memory written before the arrival is
// visible after the wait. The first phase also tells that every block of the cluster runs: before it no remote shared memory may be touched.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// An arrival that publishes no data, only the barriers of mbarrier.cuh behind barriers_ready(): it waits for no earlier write.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// Stores v at `local`'s place in the shared memory of block `rank`.
__device__ __forceinline__ void cluster_store(float* local, u32 rank, float v) {
  asm volatile(
      "{\n\t"
      ".reg .b32 remote;\n\t"
      "mapa.shared::cluster.u32 remote, %0, %1;\n\t"
      "st.shared::cluster.f32 [remote], %2;\n\t"
      "}" ::"r"(shared_address(local)),
      "r"(rank), "f"(v)
      : "memory");
}
__device__ __forceinline__ void cluster_store(i32* local, u32 rank, i32 v) {
  cluster_store(reinterpret_cast<float*>(local), rank, __int_as_float(v));
}

// Stores two floats at the place of `local` in block `rank`, and counts 8 bytes at that block's barrier in the place of `told`: who waits there
// has them, and no barrier of the cluster with its fence is needed. REQUIRES: a launch with a cluster size (without one the instruction is
// illegal, even towards the block itself); local is aligned to 8 bytes; that block has its barrier ready, and ends only after its wait.
__device__ __forceinline__ void cluster_send(void* local, u32 rank, f32 first, f32 second, Barrier& told) {
  asm volatile(
      "{\n\t"
      ".reg .b32 to, barrier;\n\t"
      "mapa.shared::cluster.u32 to, %0, %2;\n\t"
      "mapa.shared::cluster.u32 barrier, %1, %2;\n\t"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [to], {%3, %4}, [barrier];\n\t"
      "}" ::"r"(shared_address(local)),
      "r"(shared_address(&told)), "r"(rank), "f"(first), "f"(second)
      : "memory");
}

}  // namespace kiln

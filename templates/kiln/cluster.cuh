// Thread block clusters: a barrier over the cluster, and stores into another block's shared memory.
//
// Everything in this header needs sm_90 or newer. Below sm_90 a template keeps its cluster size at 1, and
// calls nothing of it.
#pragma once
#include "kiln/mbarrier.cuh"

namespace kiln {

// Returns the number of this block in its cluster, from 0.
__device__ __forceinline__ u32 cluster_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Returns the number of blocks of this block's cluster.
__device__ __forceinline__ u32 cluster_size() {
  u32 size;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}

// The two halves of the cluster's barrier.
// - Every thread of every block calls cluster_arrive(), then cluster_wait(), and may then begin again. The
//   lanes of a warp make each of these calls together (.aligned).
// - Shared memory that was written before the arrival is visible after the wait.
// - After the first wait, every block of the cluster is running. No block may touch the shared memory of
//   another one before that.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Arrives as cluster_arrive() does, but does not wait for earlier writes, and so publishes no data. It only
// publishes the initialisation of barriers (mbarrier.cuh), if barriers_ready() was called before.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// Makes one arrival at the barrier of block `rank` that lies where `barrier` lies in this block. It says that this thread
// has read; its writes are published to its own block only, because a release to the cluster waits for about 1 us (H200).
__device__ __forceinline__ void cluster_arrive_at(const Barrier& barrier, u32 rank) {
  asm volatile(
      "{\n\t"
      ".reg .b32 remote;\n\t"
      "mapa.shared::cluster.u32 remote, %0, %1;\n\t"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n\t"
      "}" ::"r"(shared_address(&barrier)),
      "r"(rank)
      : "memory");
}

// Stores v in the shared memory of block `rank`, at the offset that `local` has in this block. The other
// block may read v after the next barrier of the cluster.
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

// Begins to copy `bytes` bytes of this block's shared memory to block `rank`, to where `local` lies in this block. The bytes
// count at the barrier of block `rank` that lies where `told` lies. One thread calls it, after all threads that wrote
// `from` called fence_async_shared() and met at a barrier. REQUIRES:
// - `local`, `from` and `bytes` are multiples of 16.
// - The barrier of block `rank` is ready, and this block ends only after the copy has arrived.
__device__ __forceinline__ void cluster_copy(void* local, u32 rank, const void* from, u32 bytes,
                                             Barrier& told) {
  asm volatile(
      "{\n\t"
      ".reg .b32 to, barrier;\n\t"
      "mapa.shared::cluster.u32 to, %0, %4;\n\t"
      "mapa.shared::cluster.u32 barrier, %1, %4;\n\t"
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [to], [%2], %3, [barrier];\n\t"
      "}" ::"r"(shared_address(local)),
      "r"(shared_address(&told)), "r"(shared_address(from)), "r"(bytes), "r"(rank)
      : "memory");
}

// Stores two floats in the shared memory of block `rank`, at the offset that `local` has in this block. It
// then counts 8 bytes at that block's barrier, at the offset of `told`. A thread of block `rank` that has
// waited for its barrier sees the floats. A barrier of the cluster, with its fence, is therefore not needed.
// REQUIRES:
// - The launch has a cluster size. Without a cluster size the instruction is illegal, even towards the block
//   itself.
// - `local` is aligned to 8 bytes.
// - The barrier of block `rank` is ready, and that block ends only after its wait for the barrier.
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

// Stores v as cluster_send() stores two floats, and counts 4 bytes. `local` is aligned to 4 bytes.
__device__ __forceinline__ void cluster_send(i32* local, u32 rank, i32 v, Barrier& told) {
  asm volatile(
      "{\n\t"
      ".reg .b32 to, barrier;\n\t"
      "mapa.shared::cluster.u32 to, %0, %2;\n\t"
      "mapa.shared::cluster.u32 barrier, %1, %2;\n\t"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.s32 [to], %3, [barrier];\n\t"
      "}" ::"r"(shared_address(local)),
      "r"(shared_address(&told)), "r"(rank), "r"(v)
      : "memory");
}

}  // namespace kiln

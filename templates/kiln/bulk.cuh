// Asynchronous moves that one thread starts and a Barrier completes (sm_90 and newer): from global into shared memory, and from registers
// into another block's shared memory. Below sm_90 nothing here may be called.
#pragma once
#include "kiln/mbarrier.cuh"
#include "kiln/vector.cuh"

namespace kiln {

// Announces `bytes` at the barrier and copies them; the phase ends with the last of them when no other arrival is missing.
// REQUIRES: both addresses and bytes are multiples of 16; bytes is below 2^20 (0: nothing is copied). What lies at `to` has been read by all
// who want it, which a barrier or a shuffle has told this thread; if they wrote there instead, a proxy fence stands between.
__device__ __forceinline__ void bulk_load(void* to, const void* from, u32 bytes, Barrier& landed) {
  landed.arrive_expecting(bytes);
  if (bytes == 0) return;
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)), "l"(from),
               "r"(bytes), "r"(shared_address(&landed))
               : "memory");
}

// Stores two floats at the place of `local` in block `rank` of the cluster, and counts 8 bytes at that block's barrier in the place of `landed`.
// REQUIRES: a launch with a cluster size (without one the instruction is illegal, even towards the block itself); local is aligned to 8 bytes;
// that block has its barriers ready, and does not end before it has waited for these bytes.
__device__ __forceinline__ void cluster_send(void* local, u32 rank, f32 first, f32 second, Barrier& landed) {
  asm volatile(
      "{\n\t"
      ".reg .b32 to, barrier;\n\t"
      "mapa.shared::cluster.u32 to, %0, %2;\n\t"
      "mapa.shared::cluster.u32 barrier, %1, %2;\n\t"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [to], {%3, %4}, [barrier];\n\t"
      "}" ::"r"(shared_address(local)), "r"(shared_address(&landed)), "r"(rank), "f"(first), "f"(second)
      : "memory");
}

// 16 bytes of shared memory, in program order like load of vector.cuh.
template <int N, typename T>
__device__ __forceinline__ Vec<T, N> load_shared(const T* p) {
  static_assert(N * sizeof(T) == 16, "load_shared moves 16 bytes");
  Vec<T, N> v;
  u32* w = v.word;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(shared_address(p)) : "memory");
  return v;
}

}  // namespace kiln

// Copies of whole tiles between global and shared memory by the tensor memory accelerator (TMA), from sm_90 on.
//
// One thread begins a copy, and names a tensor map and the coordinates of a box. A [[tensormap]] of the manifest makes
// the map. A load fills elements outside of the array, and a store leaves them out, so tiles at the edge need no code.
#pragma once
#include "kiln/mbarrier.cuh"

namespace kiln {

// A CUtensorMap. A kernel takes it as `const __grid_constant__ TensorMap`.
struct __align__(64) TensorMap {
  u64 words[16];
};

// Reads the map ahead of its first copy. One thread calls it.
__device__ __forceinline__ void tma_prefetch(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Cache policies of the L2, as createpolicy makes them for whole lines.
enum class L2 : u64 {
  normal = 0x1000000000000000,
  evict_first = 0x12f0000000000000,
  evict_last = 0x14f0000000000000
};

// Begins to load a box to `shared`. Its bytes count at `barrier`, where arrive_expecting() announces them, the bytes
// outside of the array included. `x` counts elements of the innermost dimension.
// REQUIRES: `shared` is aligned to 128 bytes, or to eight rows of a swizzled box (1024 bytes for rows of 128).
__device__ __forceinline__ void tma_load(void* shared, const TensorMap& map, Barrier& barrier, i32 x, i32 y,
                                         L2 keep = L2::normal) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(x), "r"(y), "l"(static_cast<u64>(keep))
      : "memory");
}
__device__ __forceinline__ void tma_load(void* shared, const TensorMap& map, Barrier& barrier, i32 x, i32 y,
                                         i32 z, L2 keep = L2::normal) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(x), "r"(y), "r"(z), "l"(static_cast<u64>(keep))
      : "memory");
}
__device__ __forceinline__ void tma_load(void* shared, const TensorMap& map, Barrier& barrier, i32 x, i32 y,
                                         i32 z, i32 w, L2 keep = L2::normal) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(x), "r"(y), "r"(z), "r"(w), "l"(static_cast<u64>(keep))
      : "memory");
}

// Loads one box into the blocks of the cluster whose bits `blocks` has, at the offset that `shared` has in each. The
// bytes count at the barrier of each block.
__device__ __forceinline__ void tma_load_to(u16 blocks, void* shared, const TensorMap& map, Barrier& barrier,
                                            i32 x, i32 y, L2 keep = L2::normal) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(x), "r"(y), "h"(blocks), "l"(static_cast<u64>(keep))
      : "memory");
}

__device__ __forceinline__ void tma_load_to(u16 blocks, void* shared, const TensorMap& map, Barrier& barrier,
                                            i32 x, i32 y, i32 z, L2 keep = L2::normal) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6, %7;" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(x), "r"(y), "r"(z), "h"(blocks),
      "l"(static_cast<u64>(keep))
      : "memory");
}

// Begins to load `bytes` neighbouring bytes, without a map. REQUIRES: both addresses and `bytes` are multiples of 16.
__device__ __forceinline__ void bulk_load(void* shared, const void* global, u32 bytes, Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(&barrier))
      : "memory");
}

// Begins to bring `bytes` neighbouring bytes into the L2. REQUIRES: the address and `bytes` are multiples of 16.
__device__ __forceinline__ void bulk_prefetch(const void* global, u32 bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}

// Makes this thread's writes to shared memory visible to copies and tensor cores. Each thread that wrote calls it before
// the barrier after which another thread begins the copy.
__device__ __forceinline__ void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Begins to store a box from `shared`. The copies that a thread began since its last tma_store_commit() are a group.
__device__ __forceinline__ void tma_store(const TensorMap& map, const void* shared, i32 x, i32 y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
               "r"(shared_address(shared)), "r"(x), "r"(y)
               : "memory");
}
__device__ __forceinline__ void tma_store(const TensorMap& map, const void* shared, i32 x, i32 y, i32 z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
      "r"(shared_address(shared)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all but the last PENDING groups of this thread have read shared memory, which may then be written again.
// A thread that stored calls it with 0 before it ends, because shared memory ends with its block.
template <int PENDING>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

}  // namespace kiln

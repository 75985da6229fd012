// A ring of stages in shared memory, which some warps fill, by TMA or by copies of threads, and others empty (sm_90 and
// newer).
#pragma once
#include "kiln/hopper/tma.cuh"

namespace kiln {

// The place of a thread in the ring. All threads begin at stage 0, and each turns its own copy.
struct RingPlace {
  int stage = 0;
  u32 parity = 0;  // of the round through the ring
};

// The barriers of a ring. They lie in shared memory.
template <int STAGES>
struct Ring {
  Barrier full[STAGES], empty[STAGES];

  // `releases`: calls of release() that empty a stage. `fills`: arrivals that fill a stage, that of begin() included. One
  // thread calls it; others may use the ring after __syncthreads(), and other blocks of a cluster after its next barrier.
  __device__ __forceinline__ void init(u32 releases, u32 fills = 1) {
    for (int i = 0; i < STAGES; ++i) full[i].init(fills), empty[i].init(releases);
    barriers_ready();
    fence_async_shared();
  }

  __device__ static __forceinline__ void next(RingPlace& at) {
    if (++at.stage == STAGES) at.stage = 0, at.parity ^= 1;
  }

  // For the thread that fills: waits until the stage is empty, and announces `bytes` bytes, which its copies bring to
  // full[at.stage].
  __device__ __forceinline__ void begin(const RingPlace& at, u32 bytes) {
    empty[at.stage].wait(at.parity ^ 1);
    full[at.stage].arrive_expecting(bytes);
  }
  // For threads that read: waits until the stage is full.
  __device__ __forceinline__ void wait(const RingPlace& at) { full[at.stage].wait(at.parity); }
  // For one lane of each warp that read: the warp has read the stage. It tells this block alone. A loader that fills the
  // stages of several blocks (tma_load_to) needs a release at its own block from the warps of each.
  __device__ __forceinline__ void release(int stage) { empty[stage].arrive(); }
};

}  // namespace kiln

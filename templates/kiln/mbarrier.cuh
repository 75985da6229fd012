// Barriers in shared memory that count arrivals and bytes (mbarrier, sm_90 and newer): what an asynchronous copy completes on.
// Below sm_90 nothing here may be called.
#pragma once
#include "kiln/types.cuh"

namespace kiln {

__device__ __forceinline__ u32 shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// A phase ends when it has had its arrivals and all bytes that they announced; the next one begins at once. Bytes may land before they are
// announced, as long as an arrival is missing. Who waits names the phase by its parity: 0 for the first, then 1, then 0. One that is two
// phases late would wait for the wrong one, so a phase may end only when all who wait for the one before it have been let go.
struct __align__(8) Barrier {
  u64 state;

  // By one thread, which then calls barriers_ready().
  __device__ __forceinline__ void init(u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals) : "memory");
  }

  __device__ __forceinline__ void arrive() { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory"); }

  // One arrival that announces `bytes` (0 is valid; below 2^20).
  __device__ __forceinline__ void arrive_expecting(u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)), "r"(bytes) : "memory");
  }

  // Until the phase of this parity has ended. What this block's threads wrote before they arrived is then visible, and what has landed,
  // from wherever it came (an acquire of cluster scope would empty the L1 as well).
  __device__ __forceinline__ void wait(u32 parity) {
    u32 done;
    do {  // each try sleeps for a while
      asm volatile(
          "{\n\t"
          ".reg .pred ended;\n\t"
          "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n\t"
          "selp.u32 %0, 1, 0, ended;\n\t"
          "}"
          : "=r"(done)
          : "r"(shared_address(this)), "r"(parity)
          : "memory");
    } while (!done);
  }
};

// The thread that initialised barriers may now start copies that complete on them; other threads and blocks use them behind a barrier.
__device__ __forceinline__ void barriers_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// Position in a ring of SLOTS barriers: the one that is next, and the parity of its phase.
template <int SLOTS>
struct RingPosition {
  u32 slot = 0;
  u32 parity = 0;

  __device__ __forceinline__ void advance() {
    if (++slot == SLOTS) {
      slot = 0;
      parity ^= 1;
    }
  }
};

}  // namespace kiln

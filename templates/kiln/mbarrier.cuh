// Barriers in shared memory that count arrivals and bytes (mbarrier): what an asynchronous store completes on, or what some warps of a block wait
// for while others go on. Below sm_90 there are no bytes.
#pragma once
#include "kiln/shared.cuh"

namespace kiln {

// A phase ends when it has had its arrivals and all bytes that they announced; the next one begins at once. Who waits names the phase by its
// parity: 0 for the first, then 1, then 0.
struct __align__(8) Barrier {
  u64 state;

  // By one thread, which then calls barriers_ready().
  __device__ __forceinline__ void init(u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals)
                 : "memory");
  }

  // One arrival that announces `bytes` (0 is valid; below 2^20).
  __device__ __forceinline__ void arrive_expecting(u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)),
                 "r"(bytes)
                 : "memory");
  }

  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
  }

  // Until the phase of this parity has ended. What this block's threads wrote before they arrived is then visible, and what has landed,
  // from wherever it came (an acquire of cluster scope would empty the L1 as well).
  __device__ __forceinline__ void wait(u32 parity) {
    u32 done;
    do {  // each try sleeps for a while, from sm_90 on
      asm volatile(
          "{\n\t"
          ".reg .pred ended;\n\t"
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
          "mbarrier.test_wait.parity.shared.b64 ended, [%1], %2;\n\t"
#else
          "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n\t"
#endif
          "selp.u32 %0, 1, 0, ended;\n\t"
          "}"
          : "=r"(done)
          : "r"(shared_address(this)), "r"(parity)
          : "memory");
    } while (!done);
  }
};

// By the thread that initialised barriers: other threads and blocks may use them behind a barrier, cluster_arrive_relaxed() for one.
__device__ __forceinline__ void barriers_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

}  // namespace kiln

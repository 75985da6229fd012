// Barriers in shared memory that count arrivals and bytes (mbarrier).
//
// A barrier has two uses: an asynchronous store completes on it, or some warps of a block wait for it while
// other warps go on. Below sm_90 a barrier counts arrivals only.
#pragma once
#include "kiln/shared.cuh"

namespace kiln {

// A phase of the barrier ends when all its arrivals, and all bytes that they announced, have come. The next
// phase begins at once. A thread that waits names the phase by its parity: 0 for the first phase, then 1,
// then 0.
struct __align__(8) Barrier {
  u64 state;

  // Begins the first phase; each phase has `arrivals` arrivals. One thread calls it. The other threads of the
  // block may use the barrier after __syncthreads(). Other blocks may use it after barriers_ready().
  __device__ __forceinline__ void init(u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals)
                 : "memory");
  }

  // Makes one arrival, which announces `bytes` bytes (0 or more, below 2^20). Needs sm_90.
  __device__ __forceinline__ void arrive_expecting(u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)),
                 "r"(bytes)
                 : "memory");
  }

  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
  }

  // Waits until the phase of this parity has ended. Two kinds of writes are then visible:
  // - the writes that threads of this block made before they arrived;
  // - the announced bytes, from whichever block they came.
  // The wait acquires at block scope, because an acquire at cluster scope would also empty the L1.
  __device__ __forceinline__ void wait(u32 parity) {
    u32 done;
    do {  // from sm_90 on, each try sleeps for a while
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

// Publishes the initialisation of barriers to the cluster (sm_90 and newer). The thread that initialised them
// calls it. Other blocks may use the barriers after the next barrier of the cluster; cluster_arrive_relaxed()
// suffices for the arrival there.
__device__ __forceinline__ void barriers_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

}  // namespace kiln

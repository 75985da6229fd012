// Programmatic dependent launch: the next kernel of a stream may start before this one has ended. Without the launch attribute, and below sm_90, both are no-ops.
#pragma once

namespace kiln {

// Waits until the kernels this one depends on have ended and their writes are visible. Every thread calls it before its first access to global memory.
__device__ __forceinline__ void pdl_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the dependent kernel start once every block has called it or ended. It publishes nothing: the dependent's pdl_wait() still waits
// for this grid's end, so calling it before the stores is right.
__device__ __forceinline__ void pdl_launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace kiln

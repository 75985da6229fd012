// Programmatic dependent launch: the next kernel of a stream may start before this kernel has ended.
//
// All functions here do nothing below sm_90, and in a launch without the attribute.
#pragma once

namespace kiln {

// Waits until the kernels that this kernel depends on have ended, and their writes are visible. Every thread
// calls it before its first access to global memory.
__device__ __forceinline__ void pdl_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the dependent kernel start once every block of this grid has called it or has ended. It publishes
// nothing: the dependent's pdl_wait() still waits for the end of this grid. A kernel may therefore call it
// before it stores its results.
__device__ __forceinline__ void pdl_launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Calls pdl_launch_dependents() if the grid has at most FEW blocks along x. Call it before pdl_wait().
// A grid this small leaves most of the GPU idle, and the dependent's blocks are in place when their input is
// ready. In a chain, rms_norm of one row takes 1.24 instead of 1.45 us (H200). A larger grid would share its
// SMs with the waiting blocks.
template <int FEW>
__device__ __forceinline__ void pdl_launch_dependents_of_few() {
  if (gridDim.x <= FEW) pdl_launch_dependents();
}

}  // namespace kiln

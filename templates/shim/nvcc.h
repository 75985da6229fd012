// Name this file in a manifest's `preinclude` if a source also contains the host code of its kernels. The
// file has what nvcc gives every source without an #include, and it declares the runtime's host calls.
// Launchers then compile (as device code, with default_device), and are dropped, because no kernel calls
// them. A launcher that is instantiated explicitly is not dropped: it brings every kernel that it launches
// into the image.
#pragma once
#define __CUDA_INCLUDE_COMPILER_INTERNAL_HEADERS__
#include <cuda_device_runtime_api.h>
#include <cuda_runtime_api.h>
#undef __CUDA_INCLUDE_COMPILER_INTERNAL_HEADERS__
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <utility>

// glibc's function, which some libraries call in macros of their own. It ends the kernel with an error, like a
// failed assert.
extern "C" __host__ __device__ void __assertfail(const char* condition, const char* file, unsigned line,
                                                 const char* function, size_t bytes_of_char);
__host__ __device__ inline void __assert_fail(const char* condition, const char* file, unsigned line,
                                              const char* function) {
  __assertfail(condition, file, line, function, 1);
}

// Spellings of GCC that nvcc knows.
#define __asm__ asm
#define __volatile__ volatile
#define __extension__

// Host calls that the device runtime does not declare. They are declared and never defined. A call that is
// not dropped fails to link.
#define KILN_HOST_CALL(name) \
  template <class... Args>   \
  __host__ __device__ cudaError_t name(Args&&...);
KILN_HOST_CALL(cudaDeviceSynchronize)
KILN_HOST_CALL(cudaFuncSetAttribute)
KILN_HOST_CALL(cudaFuncSetCacheConfig)
KILN_HOST_CALL(cudaGetDeviceProperties)
KILN_HOST_CALL(cudaGetSymbolAddress)
KILN_HOST_CALL(cudaHostAlloc)
KILN_HOST_CALL(cudaLaunchCooperativeKernel)
KILN_HOST_CALL(cudaLaunchKernel)
KILN_HOST_CALL(cudaLaunchKernelEx)
KILN_HOST_CALL(cudaLaunchKernelExC)
KILN_HOST_CALL(cudaMemcpy)
KILN_HOST_CALL(cudaMemcpyFromSymbol)
KILN_HOST_CALL(cudaMemcpyToSymbol)
KILN_HOST_CALL(cudaMemset)
KILN_HOST_CALL(cudaOccupancyMaxActiveClusters)
KILN_HOST_CALL(cudaOccupancyMaxPotentialBlockSize)
KILN_HOST_CALL(cudaOccupancyMaxPotentialClusterSize)
KILN_HOST_CALL(cudaSetDevice)
KILN_HOST_CALL(cudaStreamIsCapturing)
KILN_HOST_CALL(cudaStreamSynchronize)

// The device runtime declares these functions static, and defines them only with relocatable code. A call
// would be an error even in a launcher that is dropped, so macros rename them.
KILN_HOST_CALL(kiln_host_func_get_attributes)
KILN_HOST_CALL(kiln_host_malloc)
KILN_HOST_CALL(kiln_host_occupancy)
#undef KILN_HOST_CALL
#define cudaFuncGetAttributes kiln_host_func_get_attributes
#define cudaMalloc kiln_host_malloc
#define cudaOccupancyMaxActiveBlocksPerMultiprocessor kiln_host_occupancy
#define cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags kiln_host_occupancy

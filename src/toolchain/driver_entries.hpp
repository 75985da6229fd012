// The driver's entry points that kiln uses, each with the CUDA version that introduced the ABI declared
// in driver.hpp. The versions are from the toolkit's cudaTypedefs.h; tests/toolchain compares them. A
// version is also a maximum: asked for 13000, the driver returns a cuCtxSynchronize and a
// cuCtxGetDevice that take a context.
#pragma once

/// REQUIRED(name, version) for functions that every driver since 12.0 has. OPTIONAL(name, version) for
/// functions that may stay null.
#define KILN_DRIVER_FUNCTIONS(REQUIRED, OPTIONAL)             \
  REQUIRED(cuInit, 2000)                                      \
  REQUIRED(cuDriverGetVersion, 2020)                          \
  REQUIRED(cuGetErrorName, 6000)                              \
  REQUIRED(cuGetErrorString, 6000)                            \
  REQUIRED(cuDeviceGet, 2000)                                 \
  REQUIRED(cuDeviceGetCount, 2000)                            \
  REQUIRED(cuDeviceGetName, 2000)                             \
  REQUIRED(cuDeviceGetAttribute, 2000)                        \
  REQUIRED(cuDevicePrimaryCtxRetain, 7000)                    \
  REQUIRED(cuDevicePrimaryCtxRelease, 11000)                  \
  REQUIRED(cuCtxGetCurrent, 4000)                             \
  REQUIRED(cuCtxSetCurrent, 4000)                             \
  REQUIRED(cuCtxCreate, 3020)                                 \
  REQUIRED(cuCtxDestroy, 4000)                                \
  REQUIRED(cuCtxPushCurrent, 4000)                            \
  REQUIRED(cuCtxPopCurrent, 4000)                             \
  REQUIRED(cuCtxGetId, 12000)                                 \
  REQUIRED(cuCtxGetDevice, 2000)                              \
  REQUIRED(cuCtxSynchronize, 2000)                            \
  REQUIRED(cuLibraryLoadData, 12000)                          \
  REQUIRED(cuLibraryUnload, 12000)                            \
  REQUIRED(cuLibraryGetKernel, 12000)                         \
  REQUIRED(cuKernelGetFunction, 12000)                        \
  REQUIRED(cuLibraryGetGlobal, 12000)                         \
  OPTIONAL(cuFuncLoad, 12040)                                 \
  REQUIRED(cuFuncGetAttribute, 2020)                          \
  REQUIRED(cuFuncSetAttribute, 9000)                          \
  REQUIRED(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050) \
  REQUIRED(cuLaunchKernelEx, 11060)                           \
  REQUIRED(cuTensorMapEncodeTiled, 12000)                     \
  REQUIRED(cuThreadExchangeStreamCaptureMode, 10010)          \
  REQUIRED(cuStreamIsCapturing, 10000)                        \
  REQUIRED(cuStreamCreate, 2000)                              \
  REQUIRED(cuStreamDestroy, 4000)                             \
  REQUIRED(cuStreamSynchronize, 2000)                         \
  REQUIRED(cuStreamBeginCapture, 10010)                       \
  REQUIRED(cuStreamEndCapture, 10000)                         \
  REQUIRED(cuGraphInstantiateWithFlags, 11040)                \
  REQUIRED(cuGraphLaunch, 10000)                              \
  REQUIRED(cuGraphExecDestroy, 10000)                         \
  REQUIRED(cuGraphDestroy, 10000)                             \
  REQUIRED(cuEventCreate, 2000)                               \
  REQUIRED(cuEventDestroy, 4000)                              \
  REQUIRED(cuEventRecord, 2000)                               \
  REQUIRED(cuEventSynchronize, 2000)                          \
  REQUIRED(cuEventElapsedTime, 2000)                          \
  REQUIRED(cuMemAlloc, 3020)                                  \
  REQUIRED(cuMemFree, 3020)                                   \
  REQUIRED(cuMemcpyHtoD, 3020)                                \
  REQUIRED(cuMemcpyDtoH, 3020)                                \
  REQUIRED(cuMemcpyDtoHAsync, 3020)                           \
  REQUIRED(cuMemcpyDtoD, 3020)                                \
  REQUIRED(cuMemsetD8, 3020)

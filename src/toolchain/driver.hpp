// libcuda by dlopen: a typed function table. Entry points come through cuGetProcAddress
// with explicit versions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/arch.hpp"

// The handle types of cuda.h. They are declared here, not included, because kiln builds without a toolkit.
struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUlib_st;
struct CUkern_st;
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;

namespace kiln::toolchain {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = CUctx_st*;
using CUfunction = CUfunc_st*;
using CUlibrary = CUlib_st*;
using CUkernel = CUkern_st*;
using CUstream = CUstream_st*;
using CUevent = CUevent_st*;
using CUgraph = CUgraph_st*;
using CUgraphExec = CUgraphExec_st*;

/// Values of cuda.h that kiln uses, under their names in cuda.h.
enum : int {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
  CUDA_ERROR_INVALID_SOURCE = 300,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_INVALID_CLUSTER_SIZE = 912,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
  CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
  CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
  CU_STREAM_CAPTURE_STATUS_NONE = 0,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
  CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2,
  CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
  CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
};

/// CUlaunchAttribute and CUlaunchConfig, laid out as in cuda.h. tests/toolchain compares them
/// where there is a cuda.h.
struct LaunchAttribute {
  int id = 0;
  char pad[4] = {};
  union {
    char bytes[64];
    struct {
      unsigned x, y, z;
    } cluster;
    int value;
  } value = {};
};
struct LaunchConfig {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1, block_x = 1, block_y = 1, block_z = 1, shared_bytes = 0;
  CUstream stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};

/// The functions of libcuda that kiln calls, typed for the versions in driver_entries.hpp. A function that is
/// OPTIONAL there may be null.
struct DriverFunctions {
  CUresult (*cuInit)(unsigned);
  CUresult (*cuDriverGetVersion)(int*);
  CUresult (*cuGetErrorName)(CUresult, const char**);
  CUresult (*cuGetErrorString)(CUresult, const char**);
  CUresult (*cuDeviceGet)(CUdevice*, int);
  CUresult (*cuDeviceGetCount)(int*);
  CUresult (*cuDeviceGetName)(char*, int, CUdevice);
  CUresult (*cuDeviceGetAttribute)(int*, int, CUdevice);
  CUresult (*cuDevicePrimaryCtxRetain)(CUcontext*, CUdevice);
  CUresult (*cuDevicePrimaryCtxRelease)(CUdevice);
  CUresult (*cuCtxGetCurrent)(CUcontext*);
  CUresult (*cuCtxSetCurrent)(CUcontext);
  CUresult (*cuCtxCreate)(CUcontext*, unsigned flags, CUdevice);
  CUresult (*cuCtxDestroy)(CUcontext);
  CUresult (*cuCtxPushCurrent)(CUcontext);
  CUresult (*cuCtxPopCurrent)(CUcontext*);
  CUresult (*cuCtxGetId)(CUcontext, unsigned long long*);
  CUresult (*cuCtxGetDevice)(CUdevice*);
  CUresult (*cuCtxSynchronize)();
  CUresult (*cuLibraryLoadData)(CUlibrary*, const void* code, int* jit_options, void** jit_values,
                                unsigned jit_count, int* library_options, void** library_values,
                                unsigned library_count);
  CUresult (*cuLibraryUnload)(CUlibrary);
  CUresult (*cuLibraryGetKernel)(CUkernel*, CUlibrary, const char*);
  CUresult (*cuKernelGetFunction)(CUfunction*, CUkernel);
  CUresult (*cuLibraryGetGlobal)(CUdeviceptr*, size_t* bytes, CUlibrary, const char*);
  CUresult (*cuFuncLoad)(CUfunction);
  CUresult (*cuFuncGetAttribute)(int*, int, CUfunction);
  CUresult (*cuFuncSetAttribute)(CUfunction, int, int);
  CUresult (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(int*, CUfunction, int, size_t);
  CUresult (*cuLaunchKernelEx)(const LaunchConfig*, CUfunction, void** params, void** extra);
  CUresult (*cuTensorMapEncodeTiled)(void* map, int data_type, std::uint32_t rank, void* address,
                                     const std::uint64_t* dims, const std::uint64_t* byte_strides,
                                     const std::uint32_t* box, const std::uint32_t* element_strides,
                                     int interleave, int swizzle, int l2_promotion, int fill);
  CUresult (*cuThreadExchangeStreamCaptureMode)(int*);
  CUresult (*cuStreamIsCapturing)(CUstream, int*);
  CUresult (*cuStreamCreate)(CUstream*, unsigned);
  CUresult (*cuStreamDestroy)(CUstream);
  CUresult (*cuStreamSynchronize)(CUstream);
  CUresult (*cuStreamBeginCapture)(CUstream, int mode);
  CUresult (*cuStreamEndCapture)(CUstream, CUgraph*);
  CUresult (*cuGraphInstantiateWithFlags)(CUgraphExec*, CUgraph, unsigned long long);
  CUresult (*cuGraphLaunch)(CUgraphExec, CUstream);
  CUresult (*cuGraphExecDestroy)(CUgraphExec);
  CUresult (*cuGraphDestroy)(CUgraph);
  CUresult (*cuEventCreate)(CUevent*, unsigned);
  CUresult (*cuEventDestroy)(CUevent);
  CUresult (*cuEventRecord)(CUevent, CUstream);
  CUresult (*cuEventSynchronize)(CUevent);
  CUresult (*cuEventElapsedTime)(float* ms, CUevent, CUevent);
  CUresult (*cuMemAlloc)(CUdeviceptr*, size_t);
  CUresult (*cuMemFree)(CUdeviceptr);
  CUresult (*cuMemcpyHtoD)(CUdeviceptr, const void*, size_t);
  CUresult (*cuMemcpyDtoH)(void*, CUdeviceptr, size_t);
  CUresult (*cuMemcpyDtoHAsync)(void*, CUdeviceptr, size_t, CUstream);
  CUresult (*cuMemcpyDtoD)(CUdeviceptr, CUdeviceptr, size_t);
  CUresult (*cuMemsetD8)(CUdeviceptr, unsigned char, size_t);
};

/// The libcuda of this process: its functions, the texts of its errors, and whether a fork
/// has made it unusable.
struct Driver : DriverFunctions {
  /// Loads libcuda once (KILN_LIBCUDA, else libcuda.so.1). Null when there is none or it is older than 12.0;
  /// load_error() says why. Calls only cuGetProcAddress and cuDriverGetVersion, not cuInit.
  static const Driver* get() noexcept;
  static const std::string& load_error() noexcept;

  /// "CUDA_ERROR_INVALID_IMAGE (200): device kernel image is invalid". Errors of contexts and processes also
  /// say what the caller can do about them.
  std::string describe(CUresult result) const;
  /// Throws Error(driver) "cuX while `doing`: CUDA_ERROR_... (n): ...".
  void check(CUresult result, const char* call, const std::string& doing = {}) const;

  /// Remembers that a call succeeded that needs cuInit: the driver is unusable in children that
  /// are forked from now on.
  static void saw_initialized() noexcept;
  /// True in a child that was forked after cuInit. There every driver call returns
  /// CUDA_ERROR_NOT_INITIALIZED for the rest of the child's life, even cuInit. This function makes no call:
  /// it needs kiln to have seen the driver initialised in a parent. For other parents only describe() can
  /// tell. Costs two loads and a compare.
  static bool forked_after_init() noexcept;
  /// Throws Error(driver) when forked_after_init(). The message names `doing`, CUDA_ERROR_NOT_INITIALIZED
  /// and what to do instead.
  static void refuse_in_forked_child(const std::string& doing);
};

/// The properties of a device that kiln uses.
struct DeviceFacts {
  int ordinal = 0;
  std::string name;
  base::Arch arch;
  int sms = 0, smem_optin = 0, l2 = 0;  ///< multiprocessors; bytes; bytes
};
/// Requires that cuInit was called, and remembers that. Throws Error(driver).
DeviceFacts device_facts(const Driver& driver, int ordinal);

}  // namespace kiln::toolchain

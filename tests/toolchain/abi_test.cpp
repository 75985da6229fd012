// Compares our declarations with the vendor's headers. Only the ABI must agree: types
// may be spelled differently.
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "toolchain/driver.hpp"
#include "toolchain/driver_entries.hpp"
#include "toolchain/nvrtc.hpp"

// Before cuda.h, whose macros rename the members (cuMemAlloc becomes cuMemAlloc_v2).
namespace ours {
#define KILN_TYPE_OF(name, version) \
  using T_##name = std::remove_pointer_t<decltype(kiln::toolchain::Driver::name)>;
KILN_DRIVER_FUNCTIONS(KILN_TYPE_OF, KILN_TYPE_OF)
}  // namespace ours

#if __has_include(<cudaTypedefs.h>) && __has_include(<nvrtc.h>)
#include <cuda.h>
#include <cudaTypedefs.h>
#include <nvrtc.h>

namespace {

template <class A, class B>
constexpr bool same_class() {
  if constexpr (std::is_pointer_v<A>)
    return std::is_pointer_v<B>;
  else if constexpr (std::is_void_v<A>)
    return std::is_void_v<B>;
  else
    return !std::is_pointer_v<B> && std::is_floating_point_v<A> == std::is_floating_point_v<B> &&
           sizeof(A) == sizeof(B);
}

template <class A, class B>
struct SameAbi : std::false_type {};
template <class R, class... P, class S, class... Q>
struct SameAbi<R(P...), S(Q...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(P) == sizeof...(Q))
      return same_class<R, S>() && (same_class<P, Q>() && ...);
    else
      return false;
  }();
};

// Each version is one that introduced an ABI: the vendor's headers have PFN_<name>_v<version>.
#define KILN_SAME_ABI(name, version) \
  static_assert(SameAbi<ours::T_##name, std::remove_pointer_t<PFN_##name##_v##version>>::value, #name);
KILN_DRIVER_FUNCTIONS(KILN_SAME_ABI, KILN_SAME_ABI)

using N = kiln::toolchain::Nvrtc;
#define KILN_SAME_NVRTC(name) \
  static_assert(SameAbi<std::remove_pointer_t<decltype(N::name)>, decltype(nvrtc##name)>::value, #name);
KILN_SAME_NVRTC(GetErrorString)
KILN_SAME_NVRTC(Version)
KILN_SAME_NVRTC(GetNumSupportedArchs)
KILN_SAME_NVRTC(GetSupportedArchs)
KILN_SAME_NVRTC(CreateProgram)
KILN_SAME_NVRTC(DestroyProgram)
KILN_SAME_NVRTC(CompileProgram)
KILN_SAME_NVRTC(GetCUBINSize)
KILN_SAME_NVRTC(GetCUBIN)
KILN_SAME_NVRTC(GetPTXSize)
KILN_SAME_NVRTC(GetPTX)
KILN_SAME_NVRTC(GetProgramLogSize)
KILN_SAME_NVRTC(GetProgramLog)
KILN_SAME_NVRTC(AddNameExpression)
KILN_SAME_NVRTC(GetLoweredName)

#define KILN_SAME_VALUE(name) \
  static_assert(static_cast<int>(::name) == static_cast<int>(kiln::toolchain::name), #name);
KILN_SAME_VALUE(CUDA_SUCCESS)
KILN_SAME_VALUE(CUDA_ERROR_INVALID_VALUE)
KILN_SAME_VALUE(CUDA_ERROR_NOT_INITIALIZED)
KILN_SAME_VALUE(CUDA_ERROR_DEINITIALIZED)
KILN_SAME_VALUE(CUDA_ERROR_NO_DEVICE)
KILN_SAME_VALUE(CUDA_ERROR_INVALID_IMAGE)
KILN_SAME_VALUE(CUDA_ERROR_INVALID_CONTEXT)
KILN_SAME_VALUE(CUDA_ERROR_NO_BINARY_FOR_GPU)
KILN_SAME_VALUE(CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
KILN_SAME_VALUE(CUDA_ERROR_INVALID_SOURCE)
KILN_SAME_VALUE(CUDA_ERROR_INVALID_HANDLE)
KILN_SAME_VALUE(CUDA_ERROR_CONTEXT_IS_DESTROYED)
KILN_SAME_VALUE(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
KILN_SAME_VALUE(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)
KILN_SAME_VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
KILN_SAME_VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
KILN_SAME_VALUE(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
KILN_SAME_VALUE(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
KILN_SAME_VALUE(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
KILN_SAME_VALUE(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)
KILN_SAME_VALUE(CU_STREAM_CAPTURE_STATUS_NONE)
KILN_SAME_VALUE(CU_STREAM_CAPTURE_MODE_RELAXED)
KILN_SAME_VALUE(CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
KILN_SAME_VALUE(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
KILN_SAME_VALUE(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)

using kiln::toolchain::LaunchAttribute;
using kiln::toolchain::LaunchConfig;
static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(offsetof(LaunchAttribute, id) == offsetof(CUlaunchAttribute, id));
static_assert(offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(offsetof(LaunchAttribute, value.cluster.z) == offsetof(CUlaunchAttribute, value.clusterDim.z));
static_assert(offsetof(LaunchAttribute, value.value) == offsetof(CUlaunchAttribute, value.cooperative));
static_assert(offsetof(LaunchAttribute, value.value) ==
              offsetof(CUlaunchAttribute, value.programmaticStreamSerializationAllowed));
static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(offsetof(LaunchConfig, grid_x) == offsetof(CUlaunchConfig, gridDimX));
static_assert(offsetof(LaunchConfig, block_x) == offsetof(CUlaunchConfig, blockDimX));
static_assert(offsetof(LaunchConfig, block_z) == offsetof(CUlaunchConfig, blockDimZ));
static_assert(offsetof(LaunchConfig, shared_bytes) == offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(LaunchConfig, attribute_count) == offsetof(CUlaunchConfig, numAttrs));
static_assert(sizeof(kiln::toolchain::CUdeviceptr) == sizeof(::CUdeviceptr));

TEST(Abi, AgreesWithTheVendorsHeaders) { SUCCEED() << "compared at compile time"; }

}  // namespace
#else
TEST(Abi, AgreesWithTheVendorsHeaders) {
  GTEST_SKIP() << "no cudaTypedefs.h and nvrtc.h where this was built";
}
#endif

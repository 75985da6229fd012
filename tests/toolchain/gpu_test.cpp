// On a GPU: the table binds the real driver, and the facts of the cubin agree with the driver's
// attributes of the loaded function.
#include <gtest/gtest.h>

#include "tests/toolchain/compile.hpp"
#include "toolchain/cubin.hpp"
#include "toolchain/driver.hpp"

namespace kiln::toolchain {
namespace {

constexpr int kLocalSizeBytes = 3, kNumRegs = 4, kMaxThreadsPerBlock = 0;  // CU_FUNC_ATTRIBUTE_*

constexpr char kSource[] = R"(
struct __align__(64) Aligned { float v[32]; };
extern "C" __global__ void add(float* out, int n, Aligned a) { if (threadIdx.x < n) out[threadIdx.x] = a.v[threadIdx.x] + n; }
extern "C" __global__ void __launch_bounds__(192) bounded(float* out) { out[threadIdx.x] = 1; }
)";

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    cu_ = Driver::get();
    if (!cu_) GTEST_SKIP() << Driver::load_error();
    int count = 0;
    if (cu_->cuInit(0) != CUDA_SUCCESS || cu_->cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0)
      GTEST_SKIP() << "no GPU";
    nvrtc_ = test::installed_nvrtc();
    if (!nvrtc_) GTEST_SKIP() << "no NVRTC on this machine";
    CUcontext context = nullptr;
    cu_->check(cu_->cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    cu_->check(cu_->cuCtxSetCurrent(context), "cuCtxSetCurrent");
    cubin_ =
        test::compile(*nvrtc_, kSource + test::kSpillsAndShared, device_facts(*cu_, 0).arch.name()).cubin;
    facts_ = read_cubin(std::as_bytes(std::span(cubin_)));
    cu_->check(cu_->cuLibraryLoadData(&library_, cubin_.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
               "cuLibraryLoadData");
  }
  void TearDown() override {
    if (library_) cu_->check(cu_->cuLibraryUnload(library_), "cuLibraryUnload");
  }
  CUfunction function(const std::string& name) {
    CUkernel kernel = nullptr;
    CUfunction out = nullptr;
    cu_->check(cu_->cuLibraryGetKernel(&kernel, library_, name.c_str()), "cuLibraryGetKernel");
    cu_->check(cu_->cuKernelGetFunction(&out, kernel), "cuKernelGetFunction");
    return out;
  }
  int attribute(CUfunction f, int which) {
    int value = -1;
    cu_->check(cu_->cuFuncGetAttribute(&value, which, f), "cuFuncGetAttribute");
    return value;
  }

  const Driver* cu_ = nullptr;
  const Nvrtc* nvrtc_ = nullptr;
  std::string cubin_;
  CubinFacts facts_;
  CUlibrary library_ = nullptr;
};

TEST_F(Gpu, DescribesItsDevice) {
  const DeviceFacts device = device_facts(*cu_, 0);
  EXPECT_NE(device.name, "");
  EXPECT_GT(device.sms, 0);
  EXPECT_GE(device.smem_optin, 48 << 10);
  EXPECT_GT(device.l2, 0);
}

TEST_F(Gpu, AgreesWithTheCubinsFacts) {
  ASSERT_EQ(facts_.kernels.size(), 4u);
  for (const CubinKernel& kernel : facts_.kernels) {
    const CUfunction f = function(kernel.name);
    EXPECT_EQ(attribute(f, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), static_cast<int>(kernel.shared_bytes))
        << kernel.name;
    EXPECT_EQ(attribute(f, kLocalSizeBytes), static_cast<int>(kernel.stack_bytes)) << kernel.name;
    EXPECT_EQ(attribute(f, kNumRegs), static_cast<int>(kernel.registers)) << kernel.name;
    if (kernel.max_threads) {
      EXPECT_EQ(attribute(f, kMaxThreadsPerBlock), static_cast<int>(kernel.max_threads)) << kernel.name;
    }
  }
}

TEST_F(Gpu, LaunchesAndCopies) {
  struct alignas(64) Aligned {
    float v[32];
  } a;
  for (int i = 0; i < 32; ++i) a.v[i] = static_cast<float>(i);
  CUdeviceptr out = 0;
  CUstream stream = nullptr;
  cu_->check(cu_->cuMemAlloc(&out, 128), "cuMemAlloc");
  cu_->check(cu_->cuMemsetD8(out, 0, 128), "cuMemsetD8");
  cu_->check(cu_->cuStreamCreate(&stream, 1), "cuStreamCreate");
  int n = 32;
  void* params[] = {&out, &n, &a};
  const LaunchConfig config{.block_x = 32, .stream = stream};
  cu_->check(cu_->cuFuncLoad(function("add")), "cuFuncLoad");
  cu_->check(cu_->cuStreamBeginCapture(stream, 0), "cuStreamBeginCapture");
  int status = 0;
  cu_->check(cu_->cuStreamIsCapturing(stream, &status), "cuStreamIsCapturing");
  EXPECT_EQ(status, 1);
  cu_->check(cu_->cuLaunchKernelEx(&config, function("add"), params, nullptr), "cuLaunchKernelEx");
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  cu_->check(cu_->cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  cu_->check(cu_->cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
  CUevent start = nullptr, end = nullptr;
  cu_->check(cu_->cuEventCreate(&start, 0), "cuEventCreate");
  cu_->check(cu_->cuEventCreate(&end, 0), "cuEventCreate");
  cu_->check(cu_->cuEventRecord(start, stream), "cuEventRecord");
  cu_->check(cu_->cuGraphLaunch(exec, stream), "cuGraphLaunch");
  cu_->check(cu_->cuEventRecord(end, stream), "cuEventRecord");
  cu_->check(cu_->cuEventSynchronize(end), "cuEventSynchronize");
  float ms = -1;
  cu_->check(cu_->cuEventElapsedTime(&ms, start, end), "cuEventElapsedTime");
  EXPECT_GT(ms, 0);
  cu_->check(cu_->cuCtxSynchronize(), "cuCtxSynchronize");
  CUdevice device = -1;
  cu_->check(cu_->cuCtxGetDevice(&device), "cuCtxGetDevice");
  EXPECT_EQ(device, 0);
  float back[32] = {};
  cu_->check(cu_->cuMemcpyDtoH(back, out, 128), "cuMemcpyDtoH");
  for (int i = 0; i < 32; ++i) EXPECT_EQ(back[i], static_cast<float>(i + 32));
  cu_->check(cu_->cuEventDestroy(start), "cuEventDestroy");
  cu_->check(cu_->cuEventDestroy(end), "cuEventDestroy");
  cu_->check(cu_->cuGraphExecDestroy(exec), "cuGraphExecDestroy");
  cu_->check(cu_->cuGraphDestroy(graph), "cuGraphDestroy");
  cu_->check(cu_->cuStreamDestroy(stream), "cuStreamDestroy");
  cu_->check(cu_->cuMemFree(out), "cuMemFree");
}

}  // namespace
}  // namespace kiln::toolchain

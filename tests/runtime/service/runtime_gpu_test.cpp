// Behaviour that needs a GPU. examples/engine and `kiln run --check` compare the results
// of the shipped templates.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <thread>
#include <vector>

#include "kiln/kiln.hpp"
#include "support/toolkit.hpp"
#include "support/tree.hpp"
#include "toolchain/driver.hpp"

namespace kiln::testing {
namespace {

constexpr int kCount = 1000;

class RuntimeGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* driver = toolchain::Driver::get();
    if (!driver) GTEST_SKIP() << toolchain::Driver::load_error();
    int count = 0;
    if (driver->cuInit(0) != 0 || driver->cuDeviceGetCount(&count) != 0 || count == 0)
      GTEST_SKIP() << "no GPU";
    if (!real_toolkit().has_compiler()) GTEST_SKIP() << "no NVRTC on this machine";
    driver->check(driver->cuDevicePrimaryCtxRetain(&context_, 0), "cuDevicePrimaryCtxRetain");
    driver->check(driver->cuCtxSetCurrent(context_), "cuCtxSetCurrent");
    driver->check(driver->cuStreamCreate(&stream_, 0), "cuStreamCreate");
    driver->check(driver->cuMemAlloc(&memory_, kCount * sizeof(int)), "cuMemAlloc");
    make_service();
  }
  void TearDown() override {
    service_.reset();
    if (memory_) cu().cuMemFree(memory_);
    if (stream_) cu().cuStreamDestroy(stream_);
    if (context_) cu().cuDevicePrimaryCtxRelease(0);
  }
  /// Makes a service with a template that adds N to each element through dynamic shared memory.
  void make_service() {
    service_.reset();
    service_.emplace(options());
    service_->add_template(
        "format = 1\n[template]\nname = \"add\"\nsource = \"add.cu\"\ninstantiate = \"add<{N}>\"\n"
        "[param.N]\nkind = \"int\"\nrange = [1, 100]\n"
        "[[arg]]\nname = \"out\"\ntype = \"ptr<i32>\"\naccess = \"readwrite\"\nshape = [\"n\"]\nalign = "
        "\"4\"\n"
        "[[arg]]\nname = \"n\"\ntype = \"i32\"\n"
        "[[arg]]\nname = \"bytes\"\ntype = \"i32\"\noptional = true\nvalue = 4096\n"
        "[launch]\ngrid = [\"ceil_div(n, 256)\"]\nblock = [\"256\"]\nsmem = \"bytes\"\npdl = true\n",
        "template <int N> __global__ void add(int* out, int n, int bytes) {\n"
        "  extern __shared__ int s[];\n"
        "  const int last = bytes / 4 - 256 + threadIdx.x;\n"
        "  s[last] = N;\n"
        "  const int i = blockIdx.x * 256 + threadIdx.x;\n"
        "  if (i < n) out[i] += s[last];\n}\n");
  }
  static const toolchain::Driver& cu() { return *toolchain::Driver::get(); }
  Options options() const {
    Options o = Options::hermetic();
    o.cache_dir = tree_.at("cache");
    if (const char* home = std::getenv("KILN_CUDA_HOME")) o.cuda_home = home;
    return o;
  }
  KernelTemplate add() { return service_->open("add"); }
  int* memory() const { return reinterpret_cast<int*>(memory_); }
  void zero() { cu().check(cu().cuMemsetD8(memory_, 0, kCount * sizeof(int)), "cuMemsetD8"); }
  /// Expects this value in every element after all work on the stream.
  void expect_all(int value) {
    std::vector<int> got(kCount);
    cu().check(cu().cuStreamSynchronize(stream_), "cuStreamSynchronize");
    cu().check(cu().cuMemcpyDtoH(got.data(), memory_, kCount * sizeof(int)), "cuMemcpyDtoH");
    EXPECT_EQ(got, std::vector<int>(kCount, value));
  }

  Tree tree_;
  toolchain::CUcontext context_ = nullptr;
  toolchain::CUstream stream_ = nullptr;
  toolchain::CUdeviceptr memory_ = 0;
  std::optional<Service> service_;
};

TEST_F(RuntimeGpu, LaunchesWithTheManifestsGeometryAndLargeSharedMemory) {
  zero();
  const Kernel k = add().get(3);
  k(stream_, memory(), kCount);
  k(stream_, memory(), std::size_t{kCount}, 96 << 10);
  expect_all(6);
}

/// A family or base image cannot be tried here: there is no second GPU of such a family.
TEST_F(RuntimeGpu, PtxServesWhereThereIsNoMachineCode) {
  const auto with_wide = [&](Service& service) {
    service.add_template(
        "format = 1\n[template]\nname = \"wide\"\ninstantiate = \"wide<{N}>\"\n"
        "arch = { min = \"sm_80\", features = \"base\" }\n[param.N]\nkind = \"int\"\nrange = [1, 9]\n"
        "[[arg]]\nname = \"out\"\ntype = \"ptr<i32>\"\naccess = \"readwrite\"\n[[arg]]\nname = \"n\"\n"
        "type = \"i32\"\n[launch]\ngrid = [\"ceil_div(n, 256)\"]\nblock = [256]\n",
        "template <int N> __global__ void wide(int* out, int n) {\n"
        "  const int i = blockIdx.x * 256 + threadIdx.x;\n  if (i < n) out[i] += N;\n}\n");
  };
  zero();
  {
    Service builder(options());
    with_wide(builder);
    builder.open("wide", Device::none("compute_80")).compile(5);
  }
  {
    Options o = options();
    o.mode = Mode::sealed;
    Service sealed(o);
    with_wide(sealed);
    const Kernel k = sealed.open("wide").get(5);
    EXPECT_STREQ(k.info().arch, "compute_80");
    k(stream_, memory(), kCount);
    expect_all(5);
    EXPECT_EQ(sealed.stats().other_arch, 1u);
  }
  Service service(options());
  with_wide(service);
  const KernelTemplate t = service.open("wide");
  const Kernel first = t.get(5);
  first(stream_, memory(), kCount);
  while (service.adopt() == 0) std::this_thread::yield();  // machine code was made behind
  const Kernel better = t.get(5);
  EXPECT_STRNE(better.info().arch, "compute_80");
  better(stream_, memory(), kCount);
  first(stream_, memory(), kCount);
  expect_all(20);
}

TEST_F(RuntimeGpu, RawLaunchesToo) {
  zero();
  const Kernel k = add().get(5);
  LaunchConfig config;
  config.grid[0] = 4, config.block[0] = 256, config.shared_bytes = 4096, config.stream = stream_;
  int* out = memory();
  int n = kCount, bytes = 4096;
  void* parameters[] = {&out, &n, &bytes};
  k.launch(config, parameters);
  expect_all(5);
}

TEST_F(RuntimeGpu, AReadyKernelIsCapturedAndOthersLoadMeanwhile) {
  zero();
  const KernelTemplate t = add();
  const Kernel k = t.get(2);
  toolchain::CUgraph graph = nullptr;
  toolchain::CUgraphExec exec = nullptr;
  ASSERT_EQ(cu().cuStreamBeginCapture(stream_, 0), 0);
  EXPECT_EQ(t.get(stream_, 2).handle(), k.handle());
  k(stream_, memory(), kCount);
  try {
    t.get(stream_, 7);
    ADD_FAILURE() << "made a kernel during a capture";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::not_ready) << error.what();
  }
  std::thread([&] {
    cu().cuCtxSetCurrent(context_);
    EXPECT_NO_THROW(t.get(11));
  }).join();
  ASSERT_EQ(cu().cuStreamEndCapture(stream_, &graph), 0) << "the capture is intact";
  ASSERT_EQ(cu().cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(cu().cuGraphLaunch(exec, stream_), 0);
  expect_all(6);
  EXPECT_EQ(cu().cuGraphExecDestroy(exec), 0);
  EXPECT_EQ(cu().cuGraphDestroy(graph), 0);
  t.get(stream_, 7)(stream_, memory(), kCount);
  expect_all(13);
}

TEST_F(RuntimeGpu, TheSecondServiceLoadsFromDisk) {
  add().get(4);
  make_service();
  zero();
  const Kernel k = add().get(4);
  EXPECT_EQ(k.info().outcome, KILN_OUTCOME_DISK);
  k(stream_, memory(), kCount);
  expect_all(4);
}

TEST_F(RuntimeGpu, LaunchingWithoutAContextNamesTheDriversError) {
  const Kernel k = add().get(1);
  ASSERT_EQ(cu().cuCtxSetCurrent(nullptr), 0);
  try {
    k(nullptr, memory(), kCount);
    ADD_FAILURE() << "launched without a context";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::driver);
    EXPECT_NE(std::string(error.what()).find("CUDA_ERROR_"), std::string::npos) << error.what();
  }
  ASSERT_EQ(cu().cuCtxSetCurrent(context_), 0);
}

TEST_F(RuntimeGpu, AnUnalignedPointerIsRefusedBeforeTheDriverSeesIt) {
  const Kernel k = add().get(1);
  EXPECT_THROW(k(stream_, reinterpret_cast<int*>(memory_ + 2), kCount), Error);
  zero();
  k(stream_, memory(), kCount);
  expect_all(1);
}

}  // namespace
}  // namespace kiln::testing

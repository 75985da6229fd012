// The runtime on the fake driver, and on the real driver (label gpu): captures in every mode, several
// devices, contexts that the caller makes and destroys, a busy device.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "kiln/kiln.hpp"
#include "support/places.hpp"
#include "support/time_limit.hpp"
#include "support/toolkit.hpp"
#include "support/tree.hpp"
#include "toolchain/driver.hpp"

namespace kiln::testing {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kCount = 1000;
constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class DriverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_real()) {
      ::setenv("KILN_LIBCUDA", places::kFakeCuda, 1);
      ::setenv("KILN_FAKE_DEVICES", "2", 1);
    }
    const auto* driver = toolchain::Driver::get();
    if (!driver) GTEST_SKIP() << toolchain::Driver::load_error();
    int count = 0;
    if (driver->cuInit(0) != 0 || driver->cuDeviceGetCount(&count) != 0 || count == 0)
      GTEST_SKIP() << "no GPU";
    devices_ = count;
    if (!real_toolkit().has_compiler()) GTEST_SKIP() << "no NVRTC on this machine";
    cu().check(cu().cuDevicePrimaryCtxRetain(&primary_, 0), "cuDevicePrimaryCtxRetain");
    use(primary_);
    cu().check(cu().cuStreamCreate(&stream_, 0), "cuStreamCreate");
    service_.emplace(options());
    // Adds N to each element.
    service_->add_template(
        "format = 1\n[template]\nname = \"add\"\nsource = \"add.cu\"\ninstantiate = \"add<{N}>\"\n"
        "[param.N]\nkind = \"int\"\nrange = [1, 100000]\n"
        "[[arg]]\nname = \"out\"\ntype = \"ptr<i32>\"\naccess = \"readwrite\"\nshape = [\"n\"]\n"
        "[[arg]]\nname = \"n\"\ntype = \"i32\"\n"
        "[launch]\ngrid = [\"ceil_div(n, 256)\"]\nblock = [\"256\"]\n",
        "template <int N> __global__ void add(int* out, int n) {\n"
        "  const int i = blockIdx.x * 256 + threadIdx.x;\n"
        "  if (i < n) out[i] += N;\n}\n");
    // Keeps the whole device busy.
    service_->add_template(
        "format = 1\n[template]\nname = \"spin\"\nsource = \"spin.cu\"\ninstantiate = \"spin<{N}>\"\n"
        "[param.N]\nkind = \"int\"\nrange = [1, 100000]\ndoc = \"milliseconds\"\n"
        "[launch]\ngrid = [\"dev.sms\"]\nblock = [\"64\"]\n",
        "template <int N> __global__ void spin() {\n"
        "  unsigned long long begin, now;\n"
        "  asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(begin));\n"
        "  do asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(now)); while (now - begin < N * "
        "1000000ull);\n}\n");
  }
  void TearDown() override {
    if (!toolchain::Driver::get() || !primary_) return;
    use(primary_);
    service_.reset();
    if (stream_) cu().cuStreamDestroy(stream_);
    cu().cuDevicePrimaryCtxRelease(0);
  }
  Options options() const {
    Options o = Options::hermetic();
    o.cache_dir = tree_.at("cache");
    if (const char* home = std::getenv("KILN_CUDA_HOME")) o.cuda_home = home;
    return o;
  }
  static const toolchain::Driver& cu() { return *toolchain::Driver::get(); }
  static void use(toolchain::CUcontext context) { ASSERT_EQ(cu().cuCtxSetCurrent(context), 0); }
  /// True on the real driver, where kernels compute. The fake driver only records launches.
  static bool is_real() { return std::getenv("KILN_TEST_FAKE") == nullptr; }
  static int* alloc() {
    toolchain::CUdeviceptr out = 0;
    cu().check(cu().cuMemAlloc(&out, kCount * sizeof(int)), "cuMemAlloc");
    cu().check(cu().cuMemsetD8(out, 0, kCount * sizeof(int)), "cuMemsetD8");
    return reinterpret_cast<int*>(out);
  }
  static void expect_all(const int* memory, int value) {
    if (!is_real()) return;
    std::vector<int> got(kCount);
    cu().check(cu().cuCtxSynchronize(), "cuCtxSynchronize");
    cu().check(
        cu().cuMemcpyDtoH(got.data(), reinterpret_cast<toolchain::CUdeviceptr>(memory), kCount * sizeof(int)),
        "cuMemcpyDtoH");
    EXPECT_EQ(got, std::vector<int>(kCount, value));
  }
  template <class Body>
  static std::string expect_error(Errc code, Body&& body) {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }

  Tree tree_;
  int devices_ = 0;
  toolchain::CUcontext primary_ = nullptr;
  CUstream stream_ = nullptr;
  std::optional<Service> service_;
};

class CaptureModes : public DriverTest, public ::testing::WithParamInterface<int> {};

TEST_P(CaptureModes, AColdGetOfTheCapturingStreamIsRefusedAndOthersSucceed) {
  const KernelTemplate t = service_->open("add");
  const Kernel ready = t.get(2);
  int* memory = alloc();
  toolchain::CUgraph graph = nullptr;
  toolchain::CUgraphExec exec = nullptr;
  ASSERT_EQ(cu().cuStreamBeginCapture(stream_, GetParam()), 0);
  EXPECT_EQ(t.get(stream_, 2).handle(), ready.handle());
  ready(stream_, memory, kCount);
  expect_error(Errc::not_ready, [&] { t.get(stream_, 3); });
  {
    const CaptureScope capturing;
    expect_error(Errc::not_ready, [&] { t.get(4); });
    EXPECT_TRUE(t.get(2));
  }
  std::thread([&] {
    use(primary_);
    EXPECT_NO_THROW(t.get(5)) << "another thread";
  }).join();
  EXPECT_NO_THROW(t.get_async(6).get()) << "kiln's thread";
  ASSERT_EQ(cu().cuStreamEndCapture(stream_, &graph), 0) << "the capture is intact";
  ASSERT_EQ(cu().cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(cu().cuGraphLaunch(exec, stream_), 0);
  expect_all(memory, 6);
  EXPECT_EQ(cu().cuGraphExecDestroy(exec), 0);
  EXPECT_EQ(cu().cuGraphDestroy(graph), 0);
  t.get(stream_, 3)(stream_, memory, kCount);
  expect_all(memory, 9);
}
std::string mode_name(const ::testing::TestParamInfo<int>& mode) {
  constexpr const char* names[] = {"Global", "ThreadLocal", "Relaxed"};
  return names[mode.param];
}
INSTANTIATE_TEST_SUITE_P(Modes, CaptureModes, ::testing::Values(0, 1, 2), mode_name);

TEST_F(DriverTest, OneServiceServesTwoDevices) {
  if (devices_ < 2) GTEST_SKIP() << "one device";
  toolchain::CUcontext second = nullptr;
  ASSERT_EQ(cu().cuDevicePrimaryCtxRetain(&second, 1), 0);
  const Kernel a = service_->open("add").get(1);
  int* on_first = alloc();
  std::thread([&] {
    use(second);
    const KernelTemplate there = service_->open("add");
    const Kernel b = there.get(1);
    EXPECT_NE(b.function(), a.function());
    int* on_second = alloc();
    b(nullptr, on_second, kCount);
    expect_all(on_second, 1);
    expect_error(Errc::invalid_argument, [&] { service_->open("add", Device{0, {}}); });
    EXPECT_EQ(service_->open("add", Device{1, {}}).get(1).handle(), b.handle());
  }).join();
  a(stream_, on_first, kCount);
  expect_all(on_first, 1);
  EXPECT_EQ(service_->stats().compiles, 1u) << "one image for both";
  EXPECT_EQ(service_->stats().loads, 2u);
  cu().cuDevicePrimaryCtxRelease(1);
}

TEST_F(DriverTest, ContextsOfOneDeviceHaveTheirOwnFunctions) {
  const Kernel in_primary = service_->open("add").get(1);
  toolchain::CUcontext made = nullptr;
  ASSERT_EQ(cu().cuCtxCreate(&made, 0, 0), 0);  // also makes the context current
  const Kernel in_made = service_->open("add").get(1);
  EXPECT_NE(in_made.function(), in_primary.function());
  int* memory = alloc();
  in_made(nullptr, memory, kCount);
  expect_all(memory, 1);
  use(primary_);
  memory = alloc();
  in_primary(nullptr, memory, kCount);
  expect_all(memory, 1);
  EXPECT_EQ(service_->stats().compiles, 1u);
  service_.reset();
  EXPECT_EQ(cu().cuCtxDestroy(made), 0);
}

TEST_F(DriverTest, AContextThatIsDestroyedUnderUsIsAClearErrorAndItsSuccessorWorks) {
  toolchain::CUcontext made = nullptr;
  ASSERT_EQ(cu().cuCtxCreate(&made, 0, 0), 0);
  const KernelTemplate old = service_->open("add");
  const Kernel stale = old.get(1);
  ASSERT_EQ(cu().cuCtxDestroy(made), 0);
  EXPECT_EQ(old.get(1).handle(), stale.handle()) << "a hit asks nobody";
  use(primary_);
  expect_error(Errc::no_driver, [&] { old.get(2); });
  const std::string said = expect_error(Errc::driver, [&] { old.get_async(2).get(); });
  EXPECT_NE(said.find("CUDA_ERROR_"), std::string::npos) << said;
  EXPECT_NE(said.find("add N=2"), std::string::npos) << said;
  std::printf("a get in a destroyed context: %s\n", said.c_str());
  ASSERT_EQ(cu().cuCtxCreate(&made, 0, 0), 0);  // often at the destroyed context's address
  const KernelTemplate anew = service_->open("add");
  const Kernel fresh = anew.get(1);
  EXPECT_NE(fresh.handle(), stale.handle());
  int* memory = alloc();
  fresh(nullptr, memory, kCount);
  expect_all(memory, 1);
  use(primary_);
  service_.reset();  // unloads the dead context's kernels without an error
  EXPECT_EQ(cu().cuCtxDestroy(made), 0);
}

TEST_F(DriverTest, AThreadWithoutAContextGetsReadyKernelsAndMakesThemAsynchronously) {
  const KernelTemplate t = service_->open("add");
  const Kernel ready = t.get(1);
  std::thread([&] {
    EXPECT_EQ(t.get(1).handle(), ready.handle());
    expect_error(Errc::no_driver, [&] { t.get(2); });
    EXPECT_TRUE(t.get_async(2).get());
    toolchain::CUcontext current = nullptr;
    EXPECT_EQ(cu().cuCtxGetCurrent(&current), 0);
    EXPECT_EQ(current, nullptr) << "kiln changes no caller's context";
  }).join();
}

/// A kernel occupies every multiprocessor for 3 s. Ready kernels still launch, and a caller with a deadline
/// returns in time, even if the driver blocks the load.
TEST_F(DriverTest, ABusyDeviceHoldsNeitherReadyLaunchesNorCallersWithADeadline) {
  if (!is_real()) GTEST_SKIP() << "the fake driver is never busy";
  const KernelTemplate t = service_->open("add");
  const Kernel ready = t.get(1);
  t.compile(2), t.compile(3);  // so that only the loads are measured
  const Kernel spin = service_->open("spin").get(3000);
  CUstream busy = nullptr, other = nullptr;
  ASSERT_EQ(cu().cuStreamCreate(&busy, kNonBlocking), 0);
  ASSERT_EQ(cu().cuStreamCreate(&other, kNonBlocking), 0);
  int* memory = alloc();
  spin(busy);
  const auto begin = Clock::now();
  ready(other, memory, kCount);
  ASSERT_EQ(cu().cuStreamSynchronize(other), 0);
  const double launched = seconds_since(begin);
  EXPECT_LT(launched, 2) << "a ready kernel runs beside the busy one";
  const auto asked = Clock::now();
  std::string outcome = "loaded";
  try {
    t.get(GetOptions(0.5), 2);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::deadline) << error.what();
    outcome = "deadline";
  }
  const double took = seconds_since(asked);
  EXPECT_LT(took, at_most(1.5)) << "0.5 s were asked for";
  const auto patient = Clock::now();
  EXPECT_TRUE(t.get(3));
  const double waited = seconds_since(patient);
  std::printf(
      "busy device: ready launch and sync %.1f ms; cold get with a deadline of 500 ms: %s after %.1f ms; "
      "without one: %.1f ms; the device was busy until %.1f ms\n",
      launched * 1e3, outcome.c_str(), took * 1e3, waited * 1e3,
      (cu().cuStreamSynchronize(busy), seconds_since(begin) * 1e3));
  EXPECT_TRUE(t.get(2));
  cu().cuStreamDestroy(busy), cu().cuStreamDestroy(other);
}

}  // namespace
}  // namespace kiln::testing

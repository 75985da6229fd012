// Faults that kernels report in words of their image (templates/kiln/fault.cuh). The fake driver runs no
// kernel, so the tests write the words as a kernel would.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "runtime/fake_runtime.hpp"
#include "templates/kiln/fault_words.h"

namespace kiln::testing {
namespace {

class DeviceFaults : public FakeRuntime {
 protected:
  static constexpr const char* kToml = R"toml(
[[arg]]
name = "n"
type = "i32"
[[global]]
name = "device_fault"
symbol = "kiln::device_fault"
[launch]
grid = [1]
block = [1]
)toml";
  static constexpr const char* kSource =
      "#include \"kiln/fault.cuh\"\n"
      "template <int N> __global__ void f(int n) { if (n != N) kiln::report_fault(256); }\n";

  void SetUp() override {
    FakeRuntime::SetUp();
    if (IsSkipped()) return;
    make();
  }
  void TearDown() override {
    ::unsetenv("KILN_DEBUG");
    service_.reset();
    FakeRuntime::TearDown();
  }
  void make() {
    service_.emplace(options());
    add(*service_, "watched", kToml, kSource);
    add(*service_, "silent", "[[arg]]\nname = \"n\"\ntype = \"i32\"\n[launch]\ngrid = [1]\nblock = [1]\n",
        "template <int N> __global__ void f(int n) { }\n");
  }
  Kernel watched(int n) { return service_->open("watched").get(n); }

  static toolchain::CUdeviceptr address(const Kernel& kernel) {
    return kernel.global("device_fault").address.address;
  }
  static DeviceFaultWords words(const Kernel& kernel) {
    DeviceFaultWords out{};
    EXPECT_EQ(cu().cuMemcpyDtoH(&out, address(kernel), sizeof out), 0);
    return out;
  }
  /// Counts a failed launch, as report_fault() does.
  static void fail(const Kernel& kernel, unsigned reason) {
    DeviceFaultWords now = words(kernel);
    ++now.launches, now.reason = reason;
    EXPECT_EQ(cu().cuMemcpyHtoD(address(kernel), &now, sizeof now), 0);
  }

  std::optional<Service> service_;
};

TEST_F(DeviceFaults, NameTemplateSpecialisationAndReasonOnce) {
  const Kernel four = watched(4), five = watched(5);
  service_->open("silent").get(4);
  EXPECT_TRUE(service_->device_faults().empty());
  fail(four, FAULT_OTHER_KERNEL);
  fail(four, FAULT_OTHER_WINDOW);
  auto faults = service_->device_faults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].template_name, "watched");
  EXPECT_NE(faults[0].specialization.find("N=4"), std::string::npos) << faults[0].specialization;
  EXPECT_EQ(faults[0].reason, "the work list was made for another window_left or window_right");
  EXPECT_EQ(faults[0].code, 4);
  EXPECT_EQ(faults[0].device, 0);
  EXPECT_EQ(faults[0].launches, 2u);
  EXPECT_TRUE(service_->device_faults().empty()) << "once";
  fail(five, 300);
  faults = service_->device_faults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_NE(faults[0].specialization.find("N=5"), std::string::npos);
  EXPECT_EQ(faults[0].reason, "reason 300 of the template");
  EXPECT_EQ(faults[0].code, 300);
  EXPECT_EQ(faults[0].launches, 1u);
}

TEST_F(DeviceFaults, AreThoseOfEveryDeviceAndScope) {
  const Kernel here = watched(4);
  use(1);
  Scope scope = service_->scope();
  const Kernel there = scope.open("watched").get(4);
  fail(there, FAULT_OTHER_HEADS);
  use(0);
  fail(here, FAULT_OTHER_WORKERS);
  auto faults = service_->device_faults();
  ASSERT_EQ(faults.size(), 2u);
  std::ranges::sort(faults, {}, &DeviceFault::device);
  EXPECT_EQ(faults[0].code, FAULT_OTHER_WORKERS);
  EXPECT_EQ(faults[1].device, 1);
  EXPECT_EQ(faults[1].code, FAULT_OTHER_HEADS);
  toolchain::CUcontext current = nullptr;
  EXPECT_EQ(cu().cuCtxGetCurrent(&current), 0);
  EXPECT_EQ(current, contexts_[0]) << "the caller's context is current again";
}

TEST_F(DeviceFaults, AreReadWhileAStreamCapturesAndAfterTheSeal) {
  const Kernel kernel = watched(4);
  service_->seal();
  const CUstream stream = make_stream();
  kiln_fake_strict_capture(1);
  ASSERT_EQ(cu().cuStreamBeginCapture(stream, 0), 0);
  fail(kernel, FAULT_LENGTHS);
  EXPECT_EQ(service_->device_faults().size(), 1u);
  toolchain::CUgraph graph = nullptr;
  EXPECT_EQ(cu().cuStreamEndCapture(stream, &graph), 0) << "the capture is still good";
  EXPECT_EQ(kiln_fake_live("stream"), 1u) << "and no stream was left";
}

TEST_F(DeviceFaults, AreCountedOnceByThreadsThatAskAtTheSameTime) {
  const Kernel kernel = watched(4);
  std::atomic<std::uint32_t> found{0};
  for (int i = 0; i < 20; ++i) {
    fail(kernel, FAULT_OTHER_KERNEL);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        ASSERT_EQ(cu().cuCtxSetCurrent(contexts_[0]), 0);
        for (const DeviceFault& fault : service_->device_faults()) found += fault.launches;
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(found, 20u);
}

TEST_F(DeviceFaults, AChildHasNoneAndCallsNoDriver) {
  fail(watched(4), FAULT_OTHER_KERNEL);
  const pid_t child = ::fork();
  if (child == 0) {
    const unsigned long calls = kiln_fake_calls_here();
    const bool none = service_->device_faults().empty();
    ::_exit(none && kiln_fake_calls_here() == calls ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(service_->device_faults().size(), 1u) << "the parent's fault is still there";
}

TEST_F(DeviceFaults, OfALostContextAreAnError) {
  watched(4);
  kiln_fake_fail("cuMemcpyDtoHAsync", 719, 0, 1);  // CUDA_ERROR_LAUNCH_FAILED
  expect_error(Errc::driver, {"cuMemcpyDtoHAsync", "reading the faults of watched"},
               [&] { service_->device_faults(); });
}

TEST_F(DeviceFaults, TrapWithDebugAlone) {
  EXPECT_EQ(words(watched(4)).traps, 0u);
  service_.reset();
  ::setenv("KILN_DEBUG", "1", 1);
  Options with = options();
  with.ignore_environment = false;
  service_.emplace(with);
  add(*service_, "watched", kToml, kSource);
  EXPECT_EQ(words(watched(4)).traps, 1u);
  ::setenv("KILN_DEBUG", "yes", 1);
  expect_error(Errc::invalid_argument, {"KILN_DEBUG", "yes", "0 or 1"}, [&] { Service{with}; });
}

}  // namespace
}  // namespace kiln::testing

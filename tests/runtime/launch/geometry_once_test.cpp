// Questions that the driver is asked once per function, context and device: large shared memory, large
// clusters, occupancy. That also holds when several threads make the first launch at once. Some limits are
// worked out at load and fail at launch.
#include <barrier>
#include <thread>

#include "runtime/fake_runtime.hpp"

namespace kiln::testing {
namespace {

class GeometryOnce : public FakeRuntime {
 protected:
  static std::string arg(const std::string& name) {
    return "[[arg]]\nname = \"" + name + "\"\ntype = \"i32\"\n";
  }
  static int attribute(CUfunction function, int which) {
    int value = -1;
    EXPECT_EQ(cu().cuFuncGetAttribute(&value, which, function), 0);
    return value;
  }
  static int shared_allowed(CUfunction function) {
    return attribute(function, toolchain::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  }
  /// Runs `launch` in eight threads at once, all in the first context.
  template <class Launch>
  void at_once(Launch&& launch) {
    std::barrier start(8);
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&] {
        cu().cuCtxSetCurrent(contexts_[0]);
        start.arrive_and_wait();
        for (int i = 0; i < 10; ++i) launch();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  /// Adds a template with N KiB of dynamic shared memory, which no argument changes.
  static void add_fixed(Service& service) {
    add(service, "fixed", "[launch]\ngrid = [\"1\"]\nblock = [\"32\"]\nsmem = \"N * 1024\"\n",
        "template <int N> __global__ void f() {}");
  }
  static KernelTemplate sized(Service& service) {
    add(service, "sized", arg("bytes") + "[launch]\ngrid = [\"1\"]\nblock = [\"32\"]\nsmem = \"bytes\"\n",
        "template <int N> __global__ void f(int bytes) {}");
    return service.open("sized");
  }
  static constexpr const char* kClustered =
      "[launch]\ngrid = [\"32\"]\nblock = [\"32\"]\ncluster = [\"blocks\"]\npdl = true\ncooperative = true\n";
};

TEST_F(GeometryOnce, SharedMemoryThatNoArgumentChangesIsAllowedAtTheFirstLaunch) {
  Service service(options());
  add_fixed(service);
  const Kernel k = service.open("fixed").get(96);
  EXPECT_EQ(kiln_fake_calls("cuFuncSetAttribute"), 0u);
  for (int i = 0; i < 3; ++i) k(nullptr);
  EXPECT_EQ(kiln_fake_calls("cuFuncSetAttribute"), 1u);
  EXPECT_EQ(last_launch().shared_bytes, 96u << 10);
  const Kernel small = service.open("fixed").get(48);
  small(nullptr);
  EXPECT_EQ(kiln_fake_calls("cuFuncSetAttribute"), 1u);
}

TEST_F(GeometryOnce, EachDeviceAllowsSharedMemoryForItsOwnFunction) {
  Service service(options());
  add_fixed(service);
  const Kernel first = service.open("fixed").get(96);
  first(nullptr);
  use(1);
  const Kernel second = service.open("fixed").get(96);
  ASSERT_NE(second.function(), first.function());
  EXPECT_EQ(shared_allowed(second.function()), 48 << 10);
  for (int i = 0; i < 3; ++i) second(nullptr);
  EXPECT_EQ(kiln_fake_calls("cuFuncSetAttribute"), 2u) << "once per function";
  EXPECT_EQ(shared_allowed(second.function()), 96 << 10);
  use(0);
  first(nullptr);
  EXPECT_EQ(kiln_fake_calls("cuFuncSetAttribute"), 2u);
}

TEST_F(GeometryOnce, AnotherContextOfOneDeviceAllowsItAgain) {
  Service service(options());
  add_fixed(service);
  service.open("fixed").get(96)(nullptr);
  toolchain::CUcontext mine = nullptr;
  ASSERT_EQ(cu().cuCtxCreate(&mine, 0, 0), 0);
  const Kernel there = service.open("fixed").get(96);
  there(nullptr);
  EXPECT_EQ(kiln_fake_calls("cuFuncSetAttribute"), 2u);
  EXPECT_EQ(shared_allowed(there.function()), 96 << 10);
}

TEST_F(GeometryOnce, ThreadsThatLaunchFirstTogetherAllowItOnce) {
  Service service(options());
  add_fixed(service);
  for (int kib = 50; kib <= 54; ++kib) {
    const Kernel k = service.open("fixed").get(kib);
    const auto before = kiln_fake_calls("cuFuncSetAttribute");
    at_once([&] { k(nullptr); });
    EXPECT_EQ(kiln_fake_calls("cuFuncSetAttribute") - before, 1u);
  }
}

TEST_F(GeometryOnce, WhatIsAllowedIsNeverLowered) {
  Service service(options());
  const Kernel k = sized(service).get();
  k(nullptr, 200 << 10);
  k(nullptr, 60 << 10);
  LaunchConfig config;
  int bytes = 0;
  void* parameters[] = {&bytes};
  config.shared_bytes = 100 << 10;
  k.launch(config, parameters);
  EXPECT_EQ(shared_allowed(k.function()), 200 << 10);
  config.shared_bytes = 210 << 10;
  k.launch(config, parameters);
  EXPECT_EQ(shared_allowed(k.function()), 210 << 10);
  EXPECT_EQ(kiln_fake_calls("cuFuncSetAttribute"), 2u);
}

TEST_F(GeometryOnce, ARefusedAllowanceIsAnErrorAndAskedForAgain) {
  Service service(options());
  add_fixed(service);
  const Kernel k = service.open("fixed").get(96);
  kiln_fake_fail("cuFuncSetAttribute", 2, 0, 1);
  expect_error(
      Errc::driver,
      {"cuFuncSetAttribute", "98304 bytes of shared memory", "fixed N=96", "CUDA_ERROR_OUT_OF_MEMORY"},
      [&] { k(nullptr); });
  EXPECT_EQ(kiln_fake_launches(), 0u);
  k(nullptr);
  EXPECT_EQ(kiln_fake_launches(), 1u);
}

TEST_F(GeometryOnce, AClusterThatAnArgumentChooses) {
  Service service(options());
  add(service, "clustered", arg("blocks") + kClustered, "template <int N> __global__ void f(int blocks) {}");
  const Kernel k = service.open("clustered").get();
  for (const int blocks : {2, 8, 1, 4}) {
    k(nullptr, blocks);
    const kiln_fake_launch seen = last_launch();
    EXPECT_EQ(seen.cluster[0], blocks == 1 ? 0u : static_cast<unsigned>(blocks)) << "1: none";
    EXPECT_TRUE(seen.programmatic && seen.cooperative) << "the other attributes stay";
  }
  EXPECT_EQ(kiln_fake_calls("cuFuncSetAttribute"), 0u) << "8 blocks fit every device";
  expect_error(Errc::requirement, {"clustered N=1", "cluster[0] = blocks = 17", "0..16"},
               [&] { k(nullptr, 17); });
  expect_error(Errc::requirement, {"cluster[0]", "-1"}, [&] { k(nullptr, -1); });
}

TEST_F(GeometryOnce, AClusterOfMoreThanEightBlocksIsAllowedOncePerFunction) {
  Service service(options());
  add(service, "clustered", arg("blocks") + kClustered, "template <int N> __global__ void f(int blocks) {}");
  for (const int device : {0, 1}) {
    use(device);
    const Kernel k = service.open("clustered").get();
    for (int i = 0; i < 3; ++i) k(nullptr, 16);
    EXPECT_EQ(last_launch().cluster[0], 16u);
    EXPECT_EQ(attribute(k.function(), toolchain::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED), 1);
    EXPECT_EQ(kiln_fake_calls("cuFuncSetAttribute"), static_cast<unsigned long>(device + 1));
  }
  use(0);
  const Kernel other = service.open("clustered").get(2);
  at_once([&] { other(nullptr, 16); });
  EXPECT_EQ(kiln_fake_calls("cuFuncSetAttribute"), 3u);
}

TEST_F(GeometryOnce, AClusterThatDoesNotFitTheDeviceIsNamed) {
  Service service(options());
  add(service, "clustered", arg("blocks") + kClustered, "template <int N> __global__ void f(int blocks) {}");
  const Kernel k = service.open("clustered").get();
  kiln_fake_fail("cuLaunchKernelEx", 912, 0, 1);  // CUDA_ERROR_INVALID_CLUSTER_SIZE
  expect_error(Errc::requirement, {"clustered N=1", "cluster = 16 x 1 x 1", "8 fit every device"},
               [&] { k(nullptr, 16); });
  k(nullptr, 16);
}

TEST_F(GeometryOnce, ALargeClusterOfARawLaunchIsAllowedToo) {
  Service service(options());
  add(service, "plain", "[launch]\ngrid = [\"1\"]\nblock = [\"32\"]\n",
      "template <int N> __global__ void f() {}");
  const Kernel k = service.open("plain").get();
  LaunchConfig config;
  config.grid[0] = 16, config.cluster[0] = 4, config.cluster[1] = 1;
  k.launch(config, nullptr);
  EXPECT_EQ(kiln_fake_calls("cuFuncSetAttribute"), 0u);
  config.cluster[0] = 16;
  k.launch(config, nullptr);
  EXPECT_EQ(last_launch().cluster[0], 16u);
}

TEST_F(GeometryOnce, OccupancyIsAskedForOnceWhenBlockAndSharedMemoryAreFixed) {
  Service service(options());
  add(service, "persistent",
      arg("n") + "[launch]\ngrid = [\"min(n, dev.sms * occupancy)\"]\nblock = [\"1024\"]\n",
      "template <int N> __global__ void f(int n) {}");
  const Kernel k = service.open("persistent").get();
  for (const int n : {5, 1000, 7}) {
    k(nullptr, n);
    EXPECT_EQ(last_launch().grid[0], static_cast<unsigned>(std::min(n, 264))) << "132 SMs of two blocks";
  }
  EXPECT_EQ(kiln_fake_calls("cuOccupancyMaxActiveBlocksPerMultiprocessor"), 1u);
  add(service, "varying", arg("n") + "[launch]\ngrid = [\"occupancy\"]\nblock = [\"n\"]\n",
      "template <int N> __global__ void f(int n) {}");
  const Kernel v = service.open("varying").get();
  v(nullptr, 1024);
  EXPECT_EQ(last_launch().grid[0], 2u);
  v(nullptr, 512);
  EXPECT_EQ(last_launch().grid[0], 4u);
}

TEST_F(GeometryOnce, WhatCanNeverBeRightIsRefusedAtEachLaunchWithItsText) {
  Service service(options());
  const std::string source = "template <int N> __global__ void f() {}";
  add(service, "wide", "[launch]\ngrid = [\"1\"]\nblock = [\"N * 1000\"]\n", source);
  add(service, "big", "[launch]\ngrid = [\"1\"]\nblock = [\"32\"]\nsmem = \"N * 100000\"\n", source);
  add(service, "divided", "[launch]\ngrid = [\"8 / (N - 2)\"]\nblock = [\"32\"]\n", source);
  add(service, "demanding",
      "[[require]]\nexpr = \"dev.sms > 1000\"\nmessage = \"wants more than {dev.sms} SMs\"\n"
      "[launch]\ngrid = [\"1\"]\nblock = [\"32\"]\n",
      source);
  const Kernel wide = service.open("wide").get(2), big = service.open("big").get(3),
               divided = service.open("divided").get(2), demanding = service.open("demanding").get();
  for (int i = 0; i < 2; ++i) {
    expect_error(Errc::requirement, {"wide N=2", "block[0] = N * 1000 = 2000", "0..1024"},
                 [&] { wide(nullptr); });
    expect_error(Errc::requirement, {"big N=3", "smem = N * 100000 = 300000", "232448"},
                 [&] { big(nullptr); });
    expect_error(Errc::requirement, {"division by zero", "'8 / (N - 2)'"}, [&] { divided(nullptr); });
    expect_error(Errc::requirement, {"demanding N=1", "wants more than 132 SMs", "dev.sms > 1000"},
                 [&] { demanding(nullptr); });
  }
  EXPECT_EQ(kiln_fake_calls("cuLaunchKernelEx"), 0u);
}

TEST_F(GeometryOnce, AnOverflowInALaunchIsARequirementWithItsText) {
  Service service(options());
  add(service, "product",
      "[[arg]]\nname = \"n\"\ntype = \"i64\"\n[launch]\ngrid = [\"ceil_div(n * 64, N)\"]\nblock = [\"32\"]\n",
      "template <int N> __global__ void f(long long n) {}");
  const Kernel k = service.open("product").get(8);
  k(nullptr, 3);
  EXPECT_EQ(last_launch().grid[0], 24u);
  expect_error(Errc::requirement, {"overflow", "'ceil_div(n * 64, N)'"}, [&] { k(nullptr, INT64_MAX / 32); });
  expect_error(Errc::requirement, {"grid[0] = ceil_div(n * 64, N) = 8589934592"},
               [&] { k(nullptr, std::int64_t{1} << 30); });
}

TEST_F(GeometryOnce, AnAlignmentThatDependsOnTheCall) {
  Service service(options());
  add(service, "strided",
      "[[arg]]\nname = \"p\"\ntype = \"ptr<f32>\"\nalign = \"bytes\"\n" + arg("bytes") +
          "[[require]]\nexpr = \"align(p) >= 4\"\nmessage = \"p = {p} of {bytes}\"\n"
          "[launch]\ngrid = [\"1\"]\nblock = [\"32\"]\n",
      "template <int N> __global__ void f(float* p, int bytes) {}");
  const Kernel k = service.open("strided").get();
  EXPECT_NO_THROW(k(nullptr, device_pointer<float>(0x10008), 12)) << "12 is no power of two";
  expect_error(Errc::requirement, {"'p' = 0x1000c", "12 bytes"},
               [&] { k(nullptr, device_pointer<float>(0x1000c), 12); });
  EXPECT_NO_THROW(k(nullptr, nullptr, 4096)) << "null is aligned to all";
  expect_error(Errc::requirement, {"p = 0x10002 of 2"},
               [&] { k(nullptr, device_pointer<float>(0x10002), 2); });
}

TEST_F(GeometryOnce, AnOmittedArgumentWhoseValueDoesNotFitIsRefused) {
  Service service(options());
  add(service, "doubled",
      "[[arg]]\nname = \"n\"\ntype = \"i64\"\n[[arg]]\nname = \"m\"\ntype = \"i32\"\noptional = true\nvalue "
      "= "
      "\"n * 2\"\n[launch]\ngrid = [\"1\"]\nblock = [\"32\"]\n",
      "template <int N> __global__ void f(long long n, int m) {}");
  const Kernel k = service.open("doubled").get();
  k(nullptr, 21);
  EXPECT_EQ(argument<std::int32_t>(last_launch(), 1), 42);
  expect_error(Errc::requirement, {"'m'", "n * 2 = 4294967296", "i32"},
               [&] { k(nullptr, std::int64_t{1} << 31); });
  EXPECT_NO_THROW(k(nullptr, std::int64_t{1} << 31, 5)) << "given";
}

}  // namespace
}  // namespace kiln::testing

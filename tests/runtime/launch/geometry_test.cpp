// Geometry on sm_90: grid, block, shared memory and attributes are what the manifests say.
// geometry_sm80_test.cpp has sm_80.
#include <atomic>
#include <barrier>
#include <thread>

#include "runtime/fake_runtime.hpp"

namespace kiln::testing {
namespace {

class Geometry : public FakeRuntime {
 protected:
  static constexpr std::uintptr_t kOut = 0x1000000, kIn = 0x2000000, kWeight = 0x3000000;
  // Every tuned parameter is given, so that a new default of a manifest changes no test.
  kiln_fake_launch rms_norm(Service& service, int H, int VEC, int THREADS, int ROWS, int rows) {
    const Kernel k = service.open("rms_norm")
                         .get({{"T", "bf16"}, {"H", H}, {"VEC", VEC}, {"THREADS", THREADS}, {"ROWS", ROWS}});
    k(nullptr, device_pointer(kOut), device_pointer(kIn), device_pointer(kWeight), rows, H, H, 1e-6f);
    return last_launch();
  }
  kiln_fake_launch softmax(Service& service, int H, int CLUSTER, int rows) {
    const Kernel k = service.open("softmax").get({{"T", "f32"}, {"H", H}, {"CLUSTER", CLUSTER}});
    k(nullptr, device_pointer(kOut), device_pointer(kIn), rows, H, H);
    return last_launch();
  }
  kiln_fake_launch act_and_mul(Service& service, int D, int rows) {
    const Kernel k = service.open("act_and_mul")
                         .get({{"T", "bf16"}, {"D", D}, {"VEC", 8}, {"THREADS", 256}, {"UNROLL", 2}});
    k(nullptr, device_pointer(kOut), device_pointer(kIn), rows, 2 * D, D);
    return last_launch();
  }
  static void expect_geometry(const kiln_fake_launch& seen, unsigned grid, unsigned block_x, unsigned block_y,
                              unsigned cluster) {
    EXPECT_EQ(seen.grid[0], grid);
    EXPECT_EQ(seen.grid[1], 1u);
    EXPECT_EQ(seen.grid[2], 1u);
    EXPECT_EQ(seen.block[0], block_x);
    EXPECT_EQ(seen.block[1], block_y);
    EXPECT_EQ(seen.block[2], 1u);
    EXPECT_EQ(seen.cluster[0], cluster) << "0: no cluster attribute";
    EXPECT_EQ(seen.shared_bytes, 0u);
    EXPECT_TRUE(seen.programmatic) << "sm_90 knows programmatic dependent launch";
    EXPECT_FALSE(seen.cooperative);
  }
  static constexpr const char* kShared =
      "[[arg]]\nname = \"bytes\"\ntype = \"i32\"\n[launch]\ngrid = [\"1\"]\nblock = [\"32\"]\nsmem = "
      "\"bytes\"\n";
  static constexpr const char* kSharedSource =
      "template <int N> __global__ void f(int bytes) { extern __shared__ char s[]; s[threadIdx.x] = bytes; }";
};

TEST_F(Geometry, RmsNormHasABlockOfRowsOrARowOfThreads) {
  Service service(options());
  expect_geometry(rms_norm(service, 4096, 8, 256, 1, 1), 1, 256, 1, 0);
  expect_geometry(rms_norm(service, 4096, 8, 256, 1, 8192), 8192, 256, 1, 0);
  expect_geometry(rms_norm(service, 128, 8, 8, 32, 1), 1, 8, 32, 0);
  expect_geometry(rms_norm(service, 128, 8, 8, 32, 32), 1, 8, 32, 0);
  expect_geometry(rms_norm(service, 128, 8, 8, 32, 33), 2, 8, 32, 0);
  expect_geometry(rms_norm(service, 1023, 1, 512, 1, 7), 7, 512, 1, 0);
}

TEST_F(Geometry, ActAndMulCoversAllVectors) {
  Service service(options());
  // D = 7168, VEC = 8: 896 vectors a row, 512 a block.
  expect_geometry(act_and_mul(service, 7168, 1), 2, 256, 1, 0);
  expect_geometry(act_and_mul(service, 7168, 100), 175, 256, 1, 0);
  expect_geometry(act_and_mul(service, 8, 513), 2, 256, 1, 0);
}

TEST_F(Geometry, SoftmaxHasAClusterAttributeOnlyForMoreThanOneBlock) {
  Service service(options());
  for (const unsigned cluster : {1u, 2u, 8u}) {
    const kiln_fake_launch seen = softmax(service, 128256, static_cast<int>(cluster), 12);
    EXPECT_EQ(seen.grid[0], 12 * cluster);
    EXPECT_EQ(seen.cluster[0], cluster == 1 ? 0u : cluster);
    EXPECT_EQ(seen.cluster[1], cluster == 1 ? 0u : 1u);
    EXPECT_TRUE(seen.programmatic);
  }
}

TEST_F(Geometry, PdlOnlyWhereTheManifestSaysSo) {
  Service service(options());
  add(service, "plain",
      "[launch]\ngrid = [\"2\", \"3\", \"4\"]\nblock = [\"4\", \"2\", \"2\"]\ncooperative = true\n",
      "template <int N> __global__ void f() {}");
  service.open("plain").get()(nullptr);
  const kiln_fake_launch seen = last_launch();
  EXPECT_FALSE(seen.programmatic);
  EXPECT_TRUE(seen.cooperative);
  EXPECT_EQ(seen.grid[2], 4u);
  EXPECT_EQ(seen.block[1], 2u);
}

TEST_F(Geometry, ReadsTheDeviceAndItsOccupancy) {
  Service service(options());
  add(service, "persistent", "[launch]\ngrid = [\"dev.sms * occupancy\"]\nblock = [\"1024\"]\n",
      "template <int N> __global__ void f() {}");
  service.open("persistent").get()(nullptr);
  EXPECT_EQ(last_launch().grid[0], 264u) << "132 SMs of two blocks";
}

TEST_F(Geometry, AnImpossibleGeometryIsRefusedWithItsExpression) {
  Service service(options());
  add(service, "sized",
      "[[arg]]\nname = \"n\"\ntype = \"i32\"\n[launch]\ngrid = [\"1\", \"n\"]\nblock = [\"n\"]\n",
      "template <int N> __global__ void f(int n) {}");
  const Kernel k = service.open("sized").get();
  expect_error(Errc::requirement, {"sized N=1", "block[0]", "2000", "1024"}, [&] { k(nullptr, 2000); });
  expect_error(Errc::requirement, {"block[0]", "-5"}, [&] { k(nullptr, -5); });
  EXPECT_EQ(kiln_fake_calls("cuLaunchKernelEx"), 0u);
}

TEST_F(Geometry, MoreThan48KiBOfSharedMemoryIsAllowedOnce) {
  Service service(options());
  add(service, "shared", kShared, kSharedSource);
  const Kernel k = service.open("shared").get();
  k(nullptr, 1000);
  k(nullptr, 48 << 10);
  EXPECT_EQ(kiln_fake_calls("cuFuncSetAttribute"), 0u) << "every kernel may have that";
  k(nullptr, 100 << 10);
  EXPECT_EQ(kiln_fake_calls("cuFuncSetAttribute"), 1u);
  k(nullptr, 100 << 10);
  k(nullptr, 64 << 10);
  EXPECT_EQ(kiln_fake_calls("cuFuncSetAttribute"), 1u) << "already allowed";
  k(nullptr, 227 << 10);
  EXPECT_EQ(kiln_fake_calls("cuFuncSetAttribute"), 2u);
  EXPECT_EQ(last_launch().shared_bytes, 227u << 10);
  expect_error(Errc::requirement, {"shared N=1", "232449", "232448"}, [&] { k(nullptr, (227 << 10) + 1); });
  LaunchConfig config;
  int bytes = 0;
  void* parameters[] = {&bytes};
  config.shared_bytes = 200 << 10;
  const Kernel other = service.open("shared").get(2);
  other.launch(config, parameters);
  EXPECT_EQ(last_launch().shared_bytes, 200u << 10);
}

TEST_F(Geometry, AThreadThatAllowsLessDoesNotTakeBackWhatAnotherAllowed) {
  Service service(options());
  add(service, "shared", kShared, kSharedSource);
  const KernelTemplate t = service.open("shared");
  for (int n = 1; n <= 4; ++n) {
    const Kernel k = t.get(n);
    std::barrier both(2);
    std::atomic<int> refused{0};
    const auto grow = [&](int first) {
      cu().cuCtxSetCurrent(contexts_[0]);
      for (int kib = first; kib <= 220; kib += 2) {
        both.arrive_and_wait();
        try {
          k(nullptr, kib << 10);
        } catch (const Error&) {
          ++refused;
        }
      }
    };
    std::thread odd(grow, 49), even(grow, 50);
    odd.join();
    even.join();
    EXPECT_EQ(refused, 0);
  }
}

}  // namespace
}  // namespace kiln::testing

// Launches the kernels of tests/fixtures/foreign. Their results are what their sources
// say, to the last bit where they are exact.
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/service/service.hpp"
#include "support/gpu.hpp"
#include "support/places.hpp"

namespace kiln::testing {
namespace {

using runtime::LoadedKernel;

class ForeignGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (toolchain::device_facts(*driver_, 0).arch.number < 90) GTEST_SKIP() << "needs compute capability 9.0";
    Options options;
    options.template_path = std::string(places::kSourceDirectory) + "/tests/fixtures/foreign";
    service_ = std::make_unique<runtime::Service>(options);
  }
  void TearDown() override {
    service_.reset();
    GpuTest::TearDown();
  }
  const LoadedKernel& get(const std::string& name, std::vector<NamedValue> named) {
    auto& opened = service_->open(name, KILN_DEVICE_CURRENT, "");
    return opened.get(source::positional(opened.origin().manifest, named), {});
  }
  template <class... Args>
  void launch(const LoadedKernel& kernel, const Args&... args) {
    const void* data[] = {&args...};
    kernel.launch(nullptr, detail::ArgTypes<Args...>::value, data, sizeof...(Args));
    synchronize();
  }
  template <class T>
  static T* pointer(const DeviceArray<T>& array) {
    return reinterpret_cast<T*>(array.address());
  }
  /// An entry point of the driver that kiln itself does not use.
  template <class Function>
  static Function* driver_function(const char* name) {
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
    void* found = library ? ::dlsym(library, name) : nullptr;
    if (!found) throw std::runtime_error(std::string("no ") + name);
    return reinterpret_cast<Function*>(found);
  }
  std::unique_ptr<runtime::Service> service_;
};

TEST_F(ForeignGpu, AHostStyleHeaderComputes) {
  const std::int64_t n = 1000;
  std::vector<double> in(n);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = (i % 2 ? -1.0 : 1.0) * static_cast<double>(i);
  const DeviceArray<double> x(*driver_, in), out(*driver_, std::vector<double>(n, -1));
  launch(get("host_style", {{"T", "f64"}}), pointer(out), pointer(x), n);
  const auto got = out.host();
  for (std::size_t i = 0; i < got.size(); ++i) {
    // The high half of (2^40 + i)^2 = 2^80 + i 2^41 + i^2 is 2^16 for such small i.
    ASSERT_EQ(got[i], std::abs(in[i]) + 65536.0) << i;
  }
}

TEST_F(ForeignGpu, TypesStructsAndHiddenNamesCompute) {
  const LoadedKernel& k = get("types", {{"T", "f32"}, {"OP", "scale"}, {"ROWS", 4}, {"ROUND", "nearest"}});
  std::vector<float> in(4 * 10);
  std::iota(in.begin(), in.end(), -7.0f);
  const DeviceArray<float> x(*driver_, in), out(*driver_, std::vector<float>(in.size(), -99));
  struct Scale {
    float by;
  };
  launch(k, pointer(out), pointer(x), Scale{0.5f}, 10);
  const auto got = out.host();
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got[i], i % 10 < 8 ? std::nearbyint(in[i] * 0.5f) : -99.0f) << i;

  const DeviceArray<int> whole(*driver_, std::vector<int>(32, 21));
  launch(k.entry("twice_int"), pointer(whole));
  EXPECT_EQ(whole.host()[31], 42);
  launch(k.entry("plain_name"), pointer(whole));
  EXPECT_EQ(whole.host()[31], 43);
  launch(k.entry("hidden"), pointer(whole));
  EXPECT_EQ(whole.host()[0], 7);
  int counter = 0;
  driver_->check(driver_->cuMemcpyDtoH(&counter, k.global("counter").address, 4), "cuMemcpyDtoH");
  EXPECT_EQ(counter, 32);
  const DeviceArray<float> floats(*driver_, std::vector<float>(32, 1.5f));
  launch(k.entry("twice_float"), pointer(floats));
  EXPECT_EQ(floats.host()[31], 3.0f);
}

TEST_F(ForeignGpu, EntryPointsShareVariablesOfTheirImage) {
  constexpr int kD = 8, kN = 1000;
  struct Params {
    const double* in;
    double* out;
    int n;
    double weight[kD];
  } p{};
  const LoadedKernel& k = get("state", {{"T", "f64"}, {"D", kD}});
  ASSERT_EQ(k.constant("PARAMS"), static_cast<std::int64_t>(sizeof p));
  std::vector<double> in(kN), bias(kD);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = 0.25 * static_cast<double>(i);
  for (int d = 0; d < kD; ++d) bias[static_cast<std::size_t>(d)] = 100 * d, p.weight[d] = d + 1;
  const DeviceArray<double> x(*driver_, in), out(*driver_, std::vector<double>(kN));
  p.in = pointer(x), p.out = pointer(out), p.n = kN;
  const auto place = k.global("bias");
  ASSERT_EQ(place.bytes, kD * sizeof(double));
  driver_->check(driver_->cuMemcpyHtoD(place.address, bias.data(), place.bytes), "cuMemcpyHtoD");
  launch(k, p, kN);
  launch(k, p, kN);
  const auto got = out.host();
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got[i], in[i] * p.weight[i % kD] + bias[i % kD]) << i;
  const DeviceArray<unsigned long long> total(*driver_, {0});
  launch(k.entry("read_total"), pointer(total));
  EXPECT_EQ(total.host()[0], 2ull * kN);
}

TEST_F(ForeignGpu, StructsBeyondFourKilobytesArriveWhole) {
  constexpr int kBytes = 32700;
  struct Block {
    unsigned char bytes[kBytes];
  };
  auto block = std::make_unique<Block>();
  unsigned long long sum = 0;
  for (int i = 0; i < kBytes; ++i) sum += block->bytes[i] = static_cast<unsigned char>(i * 7);
  struct Short {
    short n;
  };
  const DeviceArray<unsigned long long> out(*driver_, {0, 0});
  launch(get("big_struct", {{"BYTES", kBytes}}), pointer(out), *block, Short{-3});
  EXPECT_EQ(out.host()[0], sum);
  EXPECT_EQ(static_cast<long long>(out.host()[1]), -3);
}

TEST_F(ForeignGpu, ATensorMapBringsTiles) {
  constexpr int kRows = 16, kColumns = 32, kTilesX = 3, kTilesY = 5;
  std::vector<float> matrix(kRows * kTilesY * kColumns * kTilesX);
  for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(i % 1021);
  const DeviceArray<float> in(*driver_, matrix), out(*driver_, std::vector<float>(kTilesX * kTilesY, -1));
  struct alignas(64) Map {
    std::uint64_t words[16];
  } map{};
  using Encode = int(Map*, int type, unsigned rank, void* address, const std::uint64_t* sizes,
                     const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t* steps,
                     int interleave, int swizzle, int promotion, int fill);
  const std::uint64_t sizes[] = {kColumns * kTilesX, kRows * kTilesY}, strides[] = {kColumns * kTilesX * 4};
  const std::uint32_t box[] = {kColumns, kRows}, steps[] = {1, 1};
  constexpr int kFloat32 = 7;
  ASSERT_EQ(driver_function<Encode>("cuTensorMapEncodeTiled")(&map, kFloat32, 2, pointer(in), sizes, strides,
                                                              box, steps, 0, 0, 0, 0),
            0);
  launch(get("tma", {{"ROWS", kRows}, {"COLUMNS", kColumns}}), map, pointer(out), kTilesX, kTilesY);
  const auto got = out.host();
  for (int ty = 0; ty < kTilesY; ++ty) {
    for (int tx = 0; tx < kTilesX; ++tx) {
      double sum = 0;
      for (int r = 0; r < kRows; ++r)
        for (int c = 0; c < kColumns; ++c)
          sum += matrix[static_cast<std::size_t>((ty * kRows + r) * kColumns * kTilesX + tx * kColumns + c)];
      EXPECT_EQ(got[static_cast<std::size_t>(ty * kTilesX + tx)], sum) << "whole numbers below 2^24";
    }
  }
}

/// Each launch gets tiles of its own matrix, also when the kernel has seen the address with another geometry, and when a
/// graph replays it.
TEST_F(ForeignGpu, ATensorMapThatTheLaunchMakesBringsTiles) {
  constexpr int kRows = 16, kColumns = 32, kPitch = 104;
  std::vector<float> matrix(80 * kPitch);
  for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(i % 1021);
  const DeviceArray<float> in(*driver_, matrix);
  const LoadedKernel& k = get("tma_made", {});
  for (const auto& [width, height] : {std::pair{96, 80}, {100, 77}, {1, 1}, {96, 80}}) {
    const int tiles_x = (width + kColumns - 1) / kColumns, tiles_y = (height + kRows - 1) / kRows;
    const DeviceArray<float> out(*driver_,
                                 std::vector<float>(static_cast<std::size_t>(tiles_x * tiles_y), -1));
    launch(k, pointer(in), pointer(out), width, height, std::int64_t{kPitch});
    const auto got = out.host();
    for (int ty = 0; ty < tiles_y; ++ty)
      for (int tx = 0; tx < tiles_x; ++tx) {
        double sum = 0;
        for (int r = ty * kRows; r < std::min(height, (ty + 1) * kRows); ++r)
          for (int c = tx * kColumns; c < std::min(width, (tx + 1) * kColumns); ++c)
            sum += matrix[static_cast<std::size_t>(r * kPitch + c)];
        EXPECT_EQ(got[static_cast<std::size_t>(ty * tiles_x + tx)], sum) << width << " x " << height;
      }
  }
}

TEST_F(ForeignGpu, AClusterOfTheSourceReadsItsNeighbour) {
  const DeviceArray<int> out(*driver_, std::vector<int>(8, -1));
  launch(get("cluster", {}), pointer(out), 8);
  EXPECT_EQ(out.host(), (std::vector<int>{1, 0, 3, 2, 5, 4, 7, 6}));
}

TEST_F(ForeignGpu, ACooperativeGridMeetsInTheMiddle) {
  constexpr int kN = 1 << 20;
  const LoadedKernel& k = get("cooperative", {});
  const DeviceArray<int> x(*driver_, std::vector<int>(2 * kN, 5));
  launch(k, pointer(x), kN);
  int blocks = 0;
  driver_->check(driver_->cuMemcpyDtoH(&blocks, k.global("arrived").address, 4), "cuMemcpyDtoH");
  EXPECT_GE(blocks, toolchain::device_facts(*driver_, 0).sms);
  const auto got = x.host();
  for (int i = 0; i < kN; ++i) {
    ASSERT_EQ(got[static_cast<std::size_t>(i)], 6) << i;
    ASSERT_EQ(got[static_cast<std::size_t>(kN + i)], 6 + blocks) << i;
  }
}

TEST_F(ForeignGpu, TexturesAreReadAndSurfacesWritten) {
  constexpr int kN = 256;
  std::vector<float> in(kN);
  for (int i = 0; i < kN; ++i) in[static_cast<std::size_t>(i)] = 0.5f * static_cast<float>(i);
  const DeviceArray<float> x(*driver_, in), out(*driver_, std::vector<float>(kN));

  // CUDA_RESOURCE_DESC: linear memory with one float channel, and an array.
  struct Resource {
    int type = 0;
    union {
      struct {
        toolchain::CUdeviceptr address;
        int format;
        unsigned channels;
        std::size_t bytes;
      } linear;
      void* array;
      int reserved[32];
    };
    unsigned flags = 0;
  } linear{}, array{};
  struct Texture {
    int address_mode[3], filter, flags, anisotropy, mip_filter;
    float mip[3], border[4];
    int reserved[12];
  } texture_of{};
  struct Array3 {
    std::size_t width, height, depth;
    int format;
    unsigned channels, flags;
  } surface_shape{kN, 1, 0, 0x20, 1, 2};  // CUDA_ARRAY3D_SURFACE_LDST
  linear.type = 2;                        // CU_RESOURCE_TYPE_LINEAR
  linear.linear = {x.address(), 0x20, 1, kN * sizeof(float)};
  unsigned long long texture = 0, surface = 0;
  ASSERT_EQ(driver_function<int(unsigned long long*, const Resource*, const Texture*, const void*)>(
                "cuTexObjectCreate")(&texture, &linear, &texture_of, nullptr),
            0);
  void* made = nullptr;
  ASSERT_EQ(driver_function<int(void**, const Array3*)>("cuArray3DCreate_v2")(&made, &surface_shape), 0);
  array.type = 0;  // CU_RESOURCE_TYPE_ARRAY
  array.array = made;
  ASSERT_EQ(
      driver_function<int(unsigned long long*, const Resource*)>("cuSurfObjectCreate")(&surface, &array), 0);

  launch(get("texture", {}), pointer(out), texture, surface, kN);
  EXPECT_EQ(out.host(), in);
  std::vector<float> written(kN);
  ASSERT_EQ(driver_function<int(void*, void*, std::size_t, std::size_t)>("cuMemcpyAtoH_v2")(
                written.data(), made, 0, kN * sizeof(float)),
            0);
  for (int i = 0; i < kN; ++i)
    ASSERT_EQ(written[static_cast<std::size_t>(i)], 2 * in[static_cast<std::size_t>(i)]) << i;
  driver_function<int(unsigned long long)>("cuTexObjectDestroy")(texture);
  driver_function<int(unsigned long long)>("cuSurfObjectDestroy")(surface);
  driver_function<int(void*)>("cuArrayDestroy")(made);
}

TEST_F(ForeignGpu, AnArchHasItsOwnKernel) {
  const DeviceArray<int> out(*driver_, {0});
  launch(get("by_arch", {}), pointer(out));
  EXPECT_EQ(out.host()[0], toolchain::device_facts(*driver_, 0).arch.number == 90 ? 9009 : 1002);
}

}  // namespace
}  // namespace kiln::testing

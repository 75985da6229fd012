// Operators on a GPU: results against float64 on the host, in streams and captured graphs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "kiln/kiln.hpp"
#include "support/toolkit.hpp"
#include "support/tree.hpp"
#include "toolchain/driver.hpp"

namespace kiln::testing {
namespace {

float from_bf16(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float out;
  std::memcpy(&out, &wide, sizeof out);
  return out;
}
std::uint16_t to_bf16(float value) {  // rounds to nearest, ties to even; no NaN here
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// bf16 numbers on the host and on the device.
struct Buffer {
  std::vector<std::uint16_t> host;
  toolchain::CUdeviceptr device = 0;
  void* pointer() const { return reinterpret_cast<void*>(device); }
  double at(std::size_t i) const { return from_bf16(host[i]); }
};

class OperatorsOnGpu : public ::testing::Test {
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
    Options o = Options::hermetic();
    o.cache_dir = tree_.at("cache");
    if (const char* home = std::getenv("KILN_CUDA_HOME")) o.cuda_home = home;
    service_.emplace(o);
  }
  void TearDown() override {
    service_.reset();
    for (const toolchain::CUdeviceptr memory : memory_) cu().cuMemFree(memory);
    if (stream_) cu().cuStreamDestroy(stream_);
    if (context_) cu().cuDevicePrimaryCtxRelease(0);
  }
  static const toolchain::Driver& cu() { return *toolchain::Driver::get(); }

  Buffer random(std::size_t count) {
    Buffer out = empty(count);
    std::normal_distribution<float> normal;
    for (std::uint16_t& value : out.host) value = to_bf16(normal(generator_));
    cu().check(cu().cuMemcpyHtoD(out.device, out.host.data(), count * 2), "cuMemcpyHtoD");
    return out;
  }
  Buffer empty(std::size_t count) {
    Buffer out;
    out.host.resize(count);
    cu().check(cu().cuMemAlloc(&out.device, count * 2), "cuMemAlloc");
    memory_.push_back(out.device);
    return out;
  }
  void fetch(Buffer& from) {
    cu().check(cu().cuStreamSynchronize(stream_), "cuStreamSynchronize");
    cu().check(cu().cuMemcpyDtoH(from.host.data(), from.device, from.host.size() * 2), "cuMemcpyDtoH");
  }
  static void expect_near(const Buffer& got, const std::vector<double>& wanted) {
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      error += std::pow(got.at(i) - wanted[i], 2), norm += std::pow(wanted[i], 2);
    EXPECT_LT(std::sqrt(error / norm), 4e-3) << "bf16 rounds to 2^-9";
  }

  Tree tree_;
  toolchain::CUcontext context_ = nullptr;
  toolchain::CUstream stream_ = nullptr;
  std::vector<toolchain::CUdeviceptr> memory_;
  std::optional<Service> service_;
  std::mt19937 generator_{7};
};

std::vector<double> normalised(const Buffer& x, const Buffer& weight, std::size_t rows, std::size_t stride) {
  const std::size_t width = weight.host.size();
  std::vector<double> out;
  for (std::size_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (std::size_t i = 0; i < width; ++i) sum += std::pow(x.at(r * stride + i), 2);
    const double scale = 1 / std::sqrt(sum / static_cast<double>(width) + 1e-5);
    for (std::size_t i = 0; i < width; ++i) out.push_back(x.at(r * stride + i) * scale * weight.at(i));
  }
  return out;
}

TEST_F(OperatorsOnGpu, RowsWithAStride) {
  const std::size_t rows = 33, width = 4096, stride = 5120;
  const Buffer x = random(rows * stride), weight = random(width);
  Buffer out = empty(rows * width);
  const Operator op = service_->operator_("rms_norm");
  const auto sized = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  const TensorView rows_of_x(x.pointer(), Dtype::bf16, {sized(rows), sized(width)}, {sized(stride), 1});
  for (int call = 0; call < 3; ++call) {  // a new call, and two that kiln remembers
    cu().check(cu().cuMemsetD8(out.device, 0, rows * width * 2), "cuMemsetD8");
    op(stream_, rows_of_x, TensorView(weight.pointer(), Dtype::bf16, {sized(width)}), 1e-5, nullptr, nullptr,
       nullptr, TensorView(out.pointer(), Dtype::bf16, {sized(rows), sized(width)}));
    fetch(out);
    expect_near(out, normalised(x, weight, rows, stride));
  }
}

TEST_F(OperatorsOnGpu, ACapturedCallIsReplayed) {
  const std::int64_t rows = 5, width = 2048;
  const Buffer weight = random(2048);
  Buffer x = random(5 * 2048), out = empty(5 * 2048);
  const Operator op = service_->operator_("rms_norm");
  const auto call = [&] {
    op(stream_, TensorView(x.pointer(), Dtype::bf16, {rows, width}),
       TensorView(weight.pointer(), Dtype::bf16, {width}), 1e-5, nullptr, nullptr, nullptr,
       TensorView(out.pointer(), Dtype::bf16, {rows, width}));
  };
  call();  // makes the kernel ready
  toolchain::CUgraph graph = nullptr;
  toolchain::CUgraphExec ready = nullptr;
  cu().check(cu().cuStreamBeginCapture(stream_, 0), "cuStreamBeginCapture");
  call();
  cu().check(cu().cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
  cu().check(cu().cuGraphInstantiateWithFlags(&ready, graph, 0), "cuGraphInstantiateWithFlags");
  const Buffer other = random(5 * 2048);
  x.host = other.host;
  cu().check(cu().cuMemcpyHtoD(x.device, other.host.data(), other.host.size() * 2), "cuMemcpyHtoD");
  cu().check(cu().cuGraphLaunch(ready, stream_), "cuGraphLaunch");
  fetch(out);
  expect_near(out, normalised(x, weight, 5, 2048));
  cu().cuGraphExecDestroy(ready), cu().cuGraphDestroy(graph);
}

/// Makes device memory, and copies inputs that are not contiguous.
struct Device {
  std::vector<toolchain::CUdeviceptr> memory;
  static std::int32_t allocate(std::size_t, const kiln_tensor* wanted, kiln_tensor* out, void* user) {
    *out = *wanted;
    std::size_t bytes = wanted->dtype_bits / 8;
    for (int i = 0; i < wanted->ndim; ++i) bytes *= static_cast<std::size_t>(wanted->shape[i]);
    toolchain::CUdeviceptr made = 0;
    if (toolchain::Driver::get()->cuMemAlloc(&made, bytes) != 0) return 1;
    static_cast<Device*>(user)->memory.push_back(made);
    out->data = reinterpret_cast<void*>(made);
    return 0;
  }
};

TEST_F(OperatorsOnGpu, TheAllocatorMakesTheOutput) {
  const Buffer x = random(3 * 2 * 512);
  Device device;
  service_->operator_("act_and_mul")
      .call(stream_, {TensorView(x.pointer(), Dtype::bf16, {3, 1024})}, Device::allocate, &device);
  ASSERT_EQ(device.memory.size(), 1u);
  memory_.push_back(device.memory[0]);
  Buffer out;
  out.host.resize(3 * 512), out.device = device.memory[0];
  fetch(out);
  std::vector<double> wanted;
  for (std::size_t r = 0; r < 3; ++r)
    for (std::size_t i = 0; i < 512; ++i) {
      const double gate = x.at(r * 1024 + i), up = x.at(r * 1024 + 512 + i);
      wanted.push_back(gate / (1 + std::exp(-gate)) * up);
    }
  expect_near(out, wanted);
}

}  // namespace
}  // namespace kiln::testing

// Operators on a GPU: results against float64 on the host, in streams and captured graphs.
#include <cmath>
#include <cstdlib>
#include <optional>
#include <vector>

#include "kiln/kiln.hpp"
#include "support/gpu.hpp"
#include "support/toolkit.hpp"
#include "support/tree.hpp"

namespace kiln::testing {
namespace {

using Numbers = std::vector<std::uint16_t>;  // of bf16

void* pointer_to(const DeviceArray<std::uint16_t>& array) { return reinterpret_cast<void*>(array.address()); }

class OperatorsOnGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (!real_toolkit().has_compiler()) GTEST_SKIP() << "no NVRTC on this machine";
    driver_->check(driver_->cuStreamCreate(&stream_, 0), "cuStreamCreate");
    Options o = Options::hermetic();
    o.cache_dir = tree_.at("cache");
    if (const char* home = std::getenv("KILN_CUDA_HOME")) o.cuda_home = home;
    service_.emplace(o);
  }
  void TearDown() override {
    service_.reset();
    if (stream_) driver_->cuStreamDestroy(stream_);
    GpuTest::TearDown();
  }
  static void expect_near(const Numbers& got, const std::vector<double>& wanted) {
    double error = 0, norm = 0;
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i)
      error += std::pow(bf16_to_float(got[i]) - wanted[i], 2), norm += std::pow(wanted[i], 2);
    EXPECT_LT(std::sqrt(error / norm), 4e-3) << "bf16 rounds to 2^-9";
  }

  Tree tree_;
  toolchain::CUstream stream_ = nullptr;
  std::optional<Service> service_;
};

std::vector<double> normalised(const Numbers& x, const Numbers& weight, std::size_t rows,
                               std::size_t stride) {
  const std::size_t width = weight.size();
  std::vector<double> out;
  for (std::size_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (std::size_t i = 0; i < width; ++i) sum += std::pow(bf16_to_float(x[r * stride + i]), 2);
    const double scale = 1 / std::sqrt(sum / static_cast<double>(width) + 1e-5);
    for (std::size_t i = 0; i < width; ++i)
      out.push_back(bf16_to_float(x[r * stride + i]) * scale * bf16_to_float(weight[i]));
  }
  return out;
}

TEST_F(OperatorsOnGpu, RowsWithAStride) {
  const std::int64_t rows = 33, width = 4096, stride = 5120;
  const Numbers x = random_bf16(33 * 5120, 1), weight = random_bf16(4096, 2);
  const DeviceArray device_x(*driver_, x), device_weight(*driver_, weight), out(*driver_, Numbers(33 * 4096));
  const Operator op = service_->operator_("rms_norm");
  for (int call = 0; call < 3; ++call) {  // a new call, and two that kiln remembers
    driver_->check(driver_->cuMemsetD8(out.address(), 0, 33 * 4096 * 2), "cuMemsetD8");
    op(stream_, TensorView(pointer_to(device_x), Dtype::bf16, {rows, width}, {stride, 1}),
       TensorView(pointer_to(device_weight), Dtype::bf16, {width}), 1e-5, nullptr, nullptr, nullptr,
       TensorView(pointer_to(out), Dtype::bf16, {rows, width}));
    synchronize();
    expect_near(out.host(), normalised(x, weight, 33, 5120));
  }
}

TEST_F(OperatorsOnGpu, ACapturedCallIsReplayed) {
  const std::int64_t rows = 5, width = 2048;
  const Numbers weight = random_bf16(2048, 2), other = random_bf16(5 * 2048, 3);
  const DeviceArray x(*driver_, random_bf16(5 * 2048, 1)), device_weight(*driver_, weight),
      out(*driver_, Numbers(5 * 2048));
  const Operator op = service_->operator_("rms_norm");
  const auto call = [&] {
    op(stream_, TensorView(pointer_to(x), Dtype::bf16, {rows, width}),
       TensorView(pointer_to(device_weight), Dtype::bf16, {width}), 1e-5, nullptr, nullptr, nullptr,
       TensorView(pointer_to(out), Dtype::bf16, {rows, width}));
  };
  call();  // makes the kernel ready
  toolchain::CUgraph graph = nullptr;
  toolchain::CUgraphExec ready = nullptr;
  driver_->check(driver_->cuStreamBeginCapture(stream_, 0), "cuStreamBeginCapture");
  call();
  driver_->check(driver_->cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
  driver_->check(driver_->cuGraphInstantiateWithFlags(&ready, graph, 0), "cuGraphInstantiateWithFlags");
  driver_->check(driver_->cuMemcpyHtoD(x.address(), other.data(), other.size() * 2), "cuMemcpyHtoD");
  driver_->check(driver_->cuGraphLaunch(ready, stream_), "cuGraphLaunch");
  synchronize();
  expect_near(out.host(), normalised(other, weight, 5, 2048));
  driver_->cuGraphExecDestroy(ready), driver_->cuGraphDestroy(graph);
}

TEST_F(OperatorsOnGpu, TheAllocatorMakesTheOutput) {
  const Numbers x = random_bf16(3 * 2 * 512, 1);
  const DeviceArray device_x(*driver_, x), out(*driver_, Numbers(3 * 512));
  struct Given {
    void* memory;
    int calls;
  } given{pointer_to(out), 0};
  const auto allocate = [](std::size_t, const kiln_tensor* wanted, kiln_tensor* made,
                           void* user) -> std::int32_t {
    auto& from = *static_cast<Given*>(user);
    *made = *wanted;
    made->data = from.memory;
    ++from.calls;
    return 0;
  };
  service_->operator_("act_and_mul")
      .call(stream_, {TensorView(pointer_to(device_x), Dtype::bf16, {3, 1024})}, allocate, &given);
  ASSERT_EQ(given.calls, 1);
  synchronize();
  std::vector<double> wanted;
  for (std::size_t r = 0; r < 3; ++r)
    for (std::size_t i = 0; i < 512; ++i) {
      const double gate = bf16_to_float(x[r * 1024 + i]), up = bf16_to_float(x[r * 1024 + 512 + i]);
      wanted.push_back(gate / (1 + std::exp(-gate)) * up);
    }
  expect_near(out.host(), wanted);
}

}  // namespace
}  // namespace kiln::testing

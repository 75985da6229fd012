// Compares the references of the shipped templates, which `kiln run --check` trusts, with double arithmetic
// on the CPU at small sizes. The kernels are compared, too, so that a fault of both cannot hide.
#include "templates/kernel_fixture.hpp"

namespace kiln::testing {
namespace {

constexpr int kRows = 5;

class ReferenceTest : public KernelTest {};

TEST_F(ReferenceTest, RmsNormAgreesWithTheCpuWithEveryFeature) {
  for (const int h : {1, 7, 128, 4096, 5001}) {
    for (const bool fused : {false, true}) {
      for (const bool gemma : {false, true}) {
        const auto n = static_cast<std::size_t>(kRows * h);
        const auto x = random_bf16(n, 1), w = random_bf16(static_cast<std::size_t>(h), 2),
                   residual = random_bf16(n, 3);
        const double eps = static_cast<double>(1e-5f);
        std::vector<double> want(n), sums(n);
        for (int r = 0; r < kRows; ++r) {
          double squares = 0;
          for (int i = 0; i < h; ++i) {
            const auto at = static_cast<std::size_t>(r * h + i);
            sums[at] =
                bf16_to_float(x[at]) + (fused ? static_cast<double>(bf16_to_float(residual[at])) : 0.0);
            squares += sums[at] * sums[at];
          }
          const double factor = 1.0 / std::sqrt(squares / h + eps);
          for (int i = 0; i < h; ++i) {
            const auto at = static_cast<std::size_t>(r * h + i);
            want[at] =
                sums[at] * factor * (bf16_to_float(w[static_cast<std::size_t>(i)]) + (gemma ? 1.0 : 0.0));
          }
        }
        const Pair k =
            get("rms_norm", {{"T", Dtype::bf16}, {"H", h}, {"FUSED_ADD", fused}, {"GEMMA", gemma}});
        const DeviceArray dx(*driver_, x), dw(*driver_, w), dresidual(*driver_, residual);
        const DeviceArray out(*driver_, std::vector<std::uint16_t>(n, 0xffff));
        const DeviceArray out_double(*driver_, std::vector<double>(n, NAN)),
            residual_double(*driver_, widened(residual));
        launch(*k.reference, pointer(out_double.address()), pointer(dx.address()), pointer(dw.address()),
               kRows, h, h, 1e-5f, pointer(residual_double.address()), h);
        launch(*k.kernel, pointer(out.address()), pointer(dx.address()), pointer(dw.address()), kRows, h, h,
               1e-5f, pointer(dresidual.address()), h);
        const std::string what =
            "H=" + std::to_string(h) + " fused=" + std::to_string(fused) + " gemma=" + std::to_string(gemma);
        EXPECT_LT(relative_rms(out_double.host(), want), 1e-12) << what;
        EXPECT_LT(relative_rms(widened(out.host()), want), 4e-3) << what;
        if (fused) {
          EXPECT_LT(relative_rms(residual_double.host(), sums), 1e-12) << what;
          EXPECT_LT(relative_rms(widened(dresidual.host()), sums), 4e-3) << what;
        }
      }
    }
  }
}

TEST_F(ReferenceTest, ActAndMulAgreesWithTheCpuForEveryActivationAndOrder) {
  const double alpha = static_cast<double>(1.702f), limit = 7;
  for (const char* act : {"silu", "gelu", "gelu_tanh", "swigluoai"}) {
    for (const char* order : {"gate_first", "up_first", "interleaved"}) {
      for (const int d : {1, 9, 256, 1000}) {
        const auto n = static_cast<std::size_t>(kRows * d);
        const auto x = random_bf16(2 * n, 4);
        std::vector<double> want(n);
        for (int r = 0; r < kRows; ++r) {
          for (int i = 0; i < d; ++i) {
            const auto at = [&](int column) {
              return static_cast<double>(bf16_to_float(x[static_cast<std::size_t>(r * 2 * d + column)]));
            };
            const bool interleaved = order[0] == 'i', gate_first = order[0] == 'g';
            double g = at(interleaved  ? 2 * i
                          : gate_first ? i
                                       : d + i),
                   u = at(interleaved  ? 2 * i + 1
                          : gate_first ? d + i
                                       : i);
            const std::string a = act;
            if (a == "silu")
              g = g / (1 + std::exp(-g));
            else if (a == "gelu")
              g = 0.5 * g * std::erfc(-g / std::sqrt(2.0));
            else if (a == "gelu_tanh")
              g = 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
            else
              g = std::min(g, limit), g = g / (1 + std::exp(-alpha * g)),
              u = std::min(std::max(u, -limit), limit) + 1;
            want[static_cast<std::size_t>(r * d + i)] = g * u;
          }
        }
        const Pair k = get("act_and_mul", {{"T", Dtype::bf16}, {"D", d}, {"ACT", act}, {"ORDER", order}});
        const DeviceArray dx(*driver_, x);
        const DeviceArray out(*driver_, std::vector<std::uint16_t>(n, 0xffff));
        const DeviceArray out_double(*driver_, std::vector<double>(n, NAN));
        launch(*k.reference, pointer(out_double.address()), pointer(dx.address()), kRows, 2 * d, d);
        launch(*k.kernel, pointer(out.address()), pointer(dx.address()), kRows, 2 * d, d);
        const std::string what = std::string(act) + ' ' + order + " D=" + std::to_string(d);
        EXPECT_LT(relative_rms(out_double.host(), want), 1e-12) << what;
        EXPECT_LT(relative_rms(widened(out.host()), want), 4e-3) << what;
      }
    }
  }
}

TEST_F(ReferenceTest, SoftmaxAgreesWithTheCpuWithTemperatureAndLog) {
  for (const bool log : {false, true}) {
    for (const int h : {1, 33, 1024, 20001}) {
      const auto n = static_cast<std::size_t>(kRows * h);
      const auto bits = random_bf16(n, 5);
      const double t = static_cast<double>(0.7f);
      std::vector<double> want(n);
      for (int r = 0; r < kRows; ++r) {
        double sum = 0;
        const auto at = [&](int i) { return static_cast<std::size_t>(r * h + i); };
        for (int i = 0; i < h; ++i) sum += std::exp(bf16_to_float(bits[at(i)]) / t);
        for (int i = 0; i < h; ++i) {
          const double v = bf16_to_float(bits[at(i)]) / t;
          want[at(i)] = log ? v - std::log(sum) : std::exp(v) / sum;
        }
      }
      if (log && h == 1) continue;  // the result is all zeros and has no relative error
      const Pair k = get("softmax", {{"T", Dtype::bf16}, {"H", h}, {"LOG", log}});
      const DeviceArray dx(*driver_, bits);
      const DeviceArray out(*driver_, std::vector<std::uint16_t>(n, 0xffff));
      const DeviceArray out_double(*driver_, std::vector<double>(n, NAN));
      launch(*k.reference, pointer(out_double.address()), pointer(dx.address()), kRows, h, h, 0.7f);
      launch(*k.kernel, pointer(out.address()), pointer(dx.address()), kRows, h, h, 0.7f);
      const std::string what = std::string(log ? "log " : "") + "H=" + std::to_string(h);
      EXPECT_LT(relative_rms(out_double.host(), want), 1e-12) << what;
      EXPECT_LT(relative_rms(widened(out.host()), want), 4e-3) << what;
    }
  }
}

}  // namespace
}  // namespace kiln::testing

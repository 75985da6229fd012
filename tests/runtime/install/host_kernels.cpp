// The two kernels of examples/engine on the CPU, preloaded for the engine's run on the fake driver. Each
// kernel computes from the launch's argument list. A wrong pointer, stride, width or order therefore shows in
// the comparison that the engine makes. The fake driver's device memory is host memory.
#include <cmath>
#include <cstdint>

#include "examples/engine/bfloat16.hpp"
#include "support/fake_driver/launch_argument.hpp"

namespace {

void rms_norm(const kiln_fake_launch& k) {
  constexpr int h = 4096;
  auto* out = argument<BFloat16*>(k, 0);
  const auto* x = argument<const BFloat16*>(k, 1);
  const auto* w = argument<const BFloat16*>(k, 2);
  const auto rows = argument<std::int32_t>(k, 3);
  const auto stride_x = argument<std::int64_t>(k, 4), stride_out = argument<std::int64_t>(k, 5),
             stride_residual = argument<std::int64_t>(k, 8);
  const auto eps = argument<float>(k, 6);
  auto* residual = argument<BFloat16*>(k, 7);
  for (int r = 0; r < rows; ++r) {
    float sum[h], squares = 0;
    for (int i = 0; i < h; ++i) {
      BFloat16& kept = residual[r * stride_residual + i];
      sum[i] = static_cast<float>(x[r * stride_x + i]) + static_cast<float>(kept);
      kept = BFloat16(sum[i]);
      squares += sum[i] * sum[i];
    }
    const float scale = 1 / std::sqrt(squares / h + eps);
    for (int i = 0; i < h; ++i) out[r * stride_out + i] = BFloat16(sum[i] * scale * static_cast<float>(w[i]));
  }
}

void softmax(const kiln_fake_launch& k) {
  constexpr int h = 32000;
  auto* out = argument<float*>(k, 0);
  const auto* x = argument<const float*>(k, 1);
  const auto rows = argument<std::int32_t>(k, 2);
  const auto stride_x = argument<std::int64_t>(k, 3), stride_out = argument<std::int64_t>(k, 4);
  const auto temperature = argument<float>(k, 5);
  for (int r = 0; r < rows; ++r) {
    double sum = 0;
    for (int i = 0; i < h; ++i) sum += std::exp(x[r * stride_x + i] / temperature);
    for (int i = 0; i < h; ++i)
      out[r * stride_out + i] = static_cast<float>(std::exp(x[r * stride_x + i] / temperature) / sum);
  }
}

void on_launch(const kiln_fake_launch* launch, void*) {
  if (std::strstr(launch->kernel, "rms_norm")) rms_norm(*launch);
  if (std::strstr(launch->kernel, "softmax")) softmax(*launch);
}

[[maybe_unused]] const bool kRegistered = (kiln_fake_on_launch(on_launch, nullptr), true);

}  // namespace

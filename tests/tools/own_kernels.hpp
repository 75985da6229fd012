// kiln_fill and kiln_compare for f32 on the CPU, for preloaded kernels over the fake driver.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "support/fake_driver/launch_argument.hpp"

namespace kiln::test {

inline void fill(const kiln_fake_launch& k) {
  auto* out = argument<float*>(k, 0);
  const auto seed = argument<std::uint64_t>(k, 2);
  for (std::int64_t i = 0; i < argument<std::int64_t>(k, 1); ++i)
    out[i] =
        1 + static_cast<float>((static_cast<std::uint64_t>(i) * 2654435761u + seed * 40503u) % 1000) / 1000;
}

inline void compare(const kiln_fake_launch& k) {
  auto* sums = argument<double*>(k, 0);
  const auto* x = argument<const float*>(k, 1);
  const auto* wanted = argument<const double*>(k, 2);
  for (std::int64_t i = 0; i < argument<std::int64_t>(k, 3); ++i) {
    sums[4] += 1;
    if (std::isfinite(x[i]) != std::isfinite(wanted[i])) {
      sums[3] += 1;
      continue;
    }
    const double error = x[i] - wanted[i];
    sums[0] += error * error;
    sums[1] += wanted[i] * wanted[i];
    sums[2] = std::max(sums[2], std::fabs(error));
  }
}

}  // namespace kiln::test

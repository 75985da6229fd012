// attn_merge and its reference against the CPU: the mean of states weighted by 2^lse, and the lse of all.
#include <limits>

#include "templates/kernel_fixture.hpp"

namespace kiln::testing::attn_merge {
namespace {

constexpr int kTokens = 5, kStates = 3, kHeads = 3, kD = 40, kRow = kHeads * kD;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

class AttnMergeTest : public KernelTest {
 protected:
  struct Merged {
    std::vector<double> v, s;
  };
  // Merges states [tokens, states, heads, D] with their base-2 lse.
  static Merged expected(const std::vector<std::uint16_t>& v, const std::vector<float>& s) {
    Merged out;
    for (int token = 0; token < kTokens; ++token) {
      for (int head = 0; head < kHeads; ++head) {
        const auto lse = [&](int n) {
          return static_cast<double>(s[static_cast<std::size_t>((token * kStates + n) * kHeads + head)]);
        };
        double sum = 0;
        for (int n = 0; n < kStates; ++n) sum += std::exp2(lse(n));
        out.s.push_back(std::log2(sum));
        for (int i = 0; i < kD; ++i) {
          double mean = 0;
          for (int n = 0; n < kStates; ++n) {
            const auto at = static_cast<std::size_t>((token * kStates + n) * kRow + head * kD + i);
            if (std::exp2(lse(n)) > 0)
              mean += std::exp2(lse(n)) / sum * static_cast<double>(bf16_to_float(v[at]));
          }
          out.v.push_back(mean);
        }
      }
    }
    return out;
  }
};

TEST_F(AttnMergeTest, WeighsStatesByTheirLseAndPassesOverThoseThatSawNothing) {
  auto v = random_bf16(kTokens * kStates * kRow, 1);
  std::vector<float> s;
  for (int i = 0; i < kTokens * kStates * kHeads; ++i) s.push_back(static_cast<float>(i * 7 % 11) - 5.0f);
  for (int n = 0; n < kStates; ++n)
    s[static_cast<std::size_t>(n * kHeads + 1)] = kNothing;  // all states of token 0, head 1
  s[static_cast<std::size_t>((2 * kStates + 1) * kHeads)] = kNothing;
  v[static_cast<std::size_t>((2 * kStates + 1) * kRow)] = 0x7fff;  // NaN in a state that saw nothing
  const Merged want = expected(v, s);

  const Pair pair = get("attn_merge", {{"T", Dtype::bf16}, {"D", kD}});
  const DeviceArray v_device(*driver_, v);
  const DeviceArray s_device(*driver_, s);
  const DeviceArray out(*driver_, std::vector<std::uint16_t>(kTokens * kRow, 0x7fff));
  const DeviceArray s_out(*driver_, std::vector<float>(kTokens * kHeads, 1.0f));
  const DeviceArray out_double(*driver_, std::vector<double>(kTokens * kRow, 1.0)),
      s_double(*driver_, std::vector<double>(kTokens * kHeads, 1.0));
  const auto run = [&](const runtime::LoadedKernel& kernel, void* to, void* to_s) {
    launch(kernel, to, pointer(v_device), pointer(s_device), kTokens, kStates, kHeads, kRow, kD,
           kStates * kRow, kRow, kD, kStates * kHeads, kHeads, 1, to_s, kHeads, 1);
  };
  run(*pair.kernel, pointer(out), pointer(s_out));
  run(*pair.reference, pointer(out_double), pointer(s_double));
  EXPECT_LT(relative_rms(out_double.host(), want.v), 1e-12);
  EXPECT_LT(relative_rms(widened(out.host()), want.v), 4e-3);
  for (std::size_t i = 0; i < want.s.size(); ++i) {
    if (std::isinf(want.s[i])) {
      EXPECT_EQ(s_double.host()[i], want.s[i]);
      EXPECT_EQ(s_out.host()[i], kNothing);
    } else {
      EXPECT_NEAR(s_double.host()[i], want.s[i], 1e-12);
      EXPECT_NEAR(static_cast<double>(s_out.host()[i]), want.s[i], 1e-5);
    }
  }
}

}  // namespace
}  // namespace kiln::testing::attn_merge

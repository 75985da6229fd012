// rope and its reference against double arithmetic on the CPU, at small sizes.
// tests/templates/attention/rope.py and append_paged_kv_gpu_test.cpp test appending to the cache.
#include <algorithm>

#include "templates/kernel_fixture.hpp"

namespace kiln::testing::rope {
namespace {

constexpr int kTokens = 5, kQHeads = 3, kKvHeads = 2;
constexpr float kTheta = 500000.0f, kScale = 8.0f, kLow = 1.0f, kHigh = 4.0f, kContext = 8192.0f;

class RopeTest : public KernelTest {
 protected:
  const std::vector<std::int64_t> positions_ = {0, 1, 77, 100003, 1000000};

  static double angle(std::int64_t position, int pair, int rotary, bool llama31) {
    const double full = std::pow(static_cast<double>(kTheta), -2.0 * pair / rotary);
    const double wavelength = 2 * M_PI / full, scaled = full / static_cast<double>(kScale);
    double frequency = scaled;
    if (llama31) {  // by wavelengths, as the model's authors write it
      const double low = static_cast<double>(kContext / kLow), high = static_cast<double>(kContext / kHigh);
      const double smooth = (static_cast<double>(kContext) / wavelength - static_cast<double>(kLow)) /
                            static_cast<double>(kHigh - kLow);
      frequency = wavelength > low    ? scaled
                  : wavelength < high ? full
                                      : (1 - smooth) * scaled + smooth * full;
    }
    return static_cast<double>(position) * frequency;
  }

  static std::vector<double> rotated(const std::vector<std::uint16_t>& bits, int heads, int d, int rotary,
                                     bool interleave, const std::vector<double>& cos,
                                     const std::vector<double>& sin) {
    auto out = widened(bits);
    for (int t = 0; t < kTokens; ++t) {
      for (int h = 0; h < heads; ++h) {
        double* head = out.data() + (t * heads + h) * d;
        for (int pair = 0; pair < rotary / 2; ++pair) {
          const auto at = static_cast<std::size_t>(t * rotary / 2 + pair);
          double &x = head[interleave ? 2 * pair : pair],
                 &y = head[interleave ? 2 * pair + 1 : pair + rotary / 2];
          const double turned = x * cos[at] - y * sin[at];
          y = y * cos[at] + x * sin[at];
          x = turned;
        }
      }
    }
    return out;
  }

  void check(int d, int rotary, bool interleave, const char* angles) {
    const std::string kind = angles;
    const auto q = random_bf16(static_cast<std::size_t>(kTokens * kQHeads * d), 1),
               k = random_bf16(static_cast<std::size_t>(kTokens * kKvHeads * d), 2);
    std::vector<double> cos, sin;
    std::vector<float> table;  // a row for each token
    std::vector<std::int64_t> positions = positions_;
    for (int t = 0; t < kTokens; ++t) {
      for (int pair = 0; pair < rotary / 2; ++pair) {
        const double a = angle(positions_[static_cast<std::size_t>(t)], pair, rotary, kind == "llama31");
        cos.push_back(kind == "table" ? static_cast<double>(static_cast<float>(std::cos(a))) : std::cos(a));
        sin.push_back(kind == "table" ? static_cast<double>(static_cast<float>(std::sin(a))) : std::sin(a));
      }
      const auto begin = static_cast<std::ptrdiff_t>(t) * rotary / 2;
      for (const auto* half : {&cos, &sin}) {
        std::transform(half->begin() + begin, half->end(), std::back_inserter(table),
                       [](double v) { return static_cast<float>(v); });
      }
      if (kind == "table") positions[static_cast<std::size_t>(t)] = t;
    }
    const Pair pair = get(
        "rope",
        {{"T", Dtype::bf16}, {"D", d}, {"ROTARY", rotary}, {"INTERLEAVE", interleave}, {"ANGLES", angles}});
    const DeviceArray dq(*driver_, q), dk(*driver_, k);
    const DeviceArray q_out(*driver_, std::vector<std::uint16_t>(q.size(), 0xffff)),
        k_out(*driver_, std::vector<std::uint16_t>(k.size(), 0xffff));
    const DeviceArray q_double(*driver_, std::vector<double>(q.size(), NAN)),
        k_double(*driver_, std::vector<double>(k.size(), NAN));
    const DeviceArray dpositions(*driver_, positions);
    const DeviceArray dtable(*driver_, table);
    const int q_row = kQHeads * d, k_row = kKvHeads * d;
    launch(*pair.kernel, pointer(q_out), pointer(k_out), pointer(dq), pointer(dk), pointer(dpositions),
           kTokens, kQHeads, kKvHeads, q_row, d, k_row, d, q_row, d, k_row, d, pointer(dtable), kTheta,
           kScale, kLow, kHigh, kContext);
    launch(*pair.reference, pointer(q_double), pointer(k_double), pointer(dq), pointer(dk),
           pointer(dpositions), kTokens, kQHeads, kKvHeads, q_row, d, k_row, d, q_row, d, k_row, d,
           pointer(dtable), kTheta, kScale, kLow, kHigh, kContext);
    const std::string what = kind + " D=" + std::to_string(d) + " ROTARY=" + std::to_string(rotary) +
                             (interleave ? " interleaved" : "");
    const auto want_q = rotated(q, kQHeads, d, rotary, interleave, cos, sin),
               want_k = rotated(k, kKvHeads, d, rotary, interleave, cos, sin);
    EXPECT_LT(relative_rms(q_double.host(), want_q), 1e-9) << what;
    EXPECT_LT(relative_rms(k_double.host(), want_k), 1e-9) << what;
    EXPECT_LT(relative_rms(widened(q_out.host()), want_q), 4e-3) << what;
    EXPECT_LT(relative_rms(widened(k_out.host()), want_k), 4e-3) << what;
  }
};

TEST_F(RopeTest, AgreesWithTheCpuForEveryKindOfAngle) {
  for (const char* angles : {"table", "theta", "llama31"}) {
    for (const bool interleave : {false, true}) {
      check(64, 64, interleave, angles);
      check(80, 80, interleave, angles);
      check(192, 64, interleave, angles);
      check(67, 10, interleave, angles);
    }
  }
}

}  // namespace
}  // namespace kiln::testing::rope

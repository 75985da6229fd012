// fp8_quant, its reference and amax against the CPU: scales and codes bit for bit, and
// the reference in double.
#include <algorithm>

#include "templates/kernel_fixture.hpp"

namespace kiln::testing::fp8_quant {
namespace {

constexpr int kRows = 5;
constexpr float kLargest = 448, kEps = 1e-10f;

double e4m3_value(int magnitude) {
  const int exponent = magnitude >> 3, mantissa = magnitude & 7;
  return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
}

// The code of the nearest finite value; of two equally near codes the even one. It
// saturates, as no code is larger.
std::uint8_t e4m3_code(double v) {
  int best = 0;
  for (int code = 1; code <= 0x7e; ++code) {
    const double now = std::fabs(std::fabs(v) - e4m3_value(code)),
                 before = std::fabs(std::fabs(v) - e4m3_value(best));
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return static_cast<std::uint8_t>(best | (std::signbit(v) ? 0x80 : 0));
}

float power_of_two_from(float scale) {
  int exponent;
  const float mantissa = std::frexp(scale, &exponent);
  return std::ldexp(1.0f, mantissa == 0.5f ? exponent - 1 : exponent);
}

class Fp8QuantTest : public KernelTest {
 protected:
  // Each span of `span` elements has one of `scales`; a single scale holds for all elements. `given` is the
  // scale of SCALING = static in device memory; it is an input, and no scales are written then.
  void check(const std::vector<NamedValue>& named, int h, int span, const std::vector<std::uint16_t>& x,
             const std::vector<float>& scales, toolchain::CUdeviceptr given = 0,
             toolchain::CUdeviceptr amax = 0, int parts = 0) {
    const auto n = x.size();
    const int groups = span > 0 && span < h ? h / span : 1;
    const DeviceArray dx(*driver_, x);
    const DeviceArray codes(*driver_, std::vector<std::uint8_t>(n, 0xff));
    const DeviceArray out(*driver_, std::vector<double>(n, NAN));
    const DeviceArray made(*driver_, std::vector<float>(scales.size(), NAN));
    const DeviceArray made_double(*driver_, std::vector<double>(scales.size(), NAN));
    launch(get_one("fp8_quant", named), pointer(codes.address()), pointer(dx.address()), kRows, h, h,
           pointer(given), pointer(given ? 0 : made.address()), groups, 1, kEps, pointer(amax), parts);
    launch(get_one("fp8_quant", named, source::Which::reference), pointer(out.address()),
           pointer(dx.address()), kRows, h, h, pointer(given), pointer(given ? 0 : made_double.address()),
           groups, 1, kEps, pointer(amax), parts);
    if (!given) {
      EXPECT_EQ(made.host(), scales);
      const auto in_double = made_double.host();
      for (std::size_t i = 0; i < scales.size(); ++i)
        EXPECT_NEAR(in_double[i] / static_cast<double>(scales[i]), 1, 1e-7);
    }
    const auto got = codes.host();
    const auto reference = out.host();
    int wrong = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const float v = bf16_to_float(x[i]),
                  scale = scales[scales.size() == 1 ? 0 : i / static_cast<std::size_t>(span)];
      wrong += got[i] != e4m3_code(static_cast<double>(v / scale));
      const double want = std::clamp(static_cast<double>(v) / static_cast<double>(scale), -448.0, 448.0);
      wrong += !(std::fabs(reference[i] - want) <= 1e-7 * std::fabs(want));
    }
    EXPECT_EQ(wrong, 0);
  }
  static std::vector<float> largest_of(const std::vector<std::uint16_t>& x, std::size_t span) {
    std::vector<float> out(x.size() / span, 0.0f);
    for (std::size_t i = 0; i < x.size(); ++i)
      out[i / span] = std::max(out[i / span], std::fabs(bf16_to_float(x[i])));
    return out;
  }
  static std::vector<float> scales_of(std::vector<float> amax, bool pow2) {
    for (auto& a : amax) {
      a = std::max(a, kEps) / kLargest;
      if (pow2) a = power_of_two_from(a);
    }
    return amax;
  }
  std::unique_ptr<runtime::Service> service_;
};

TEST_F(Fp8QuantTest, GroupsAndRowsAgreeWithTheCpu) {
  for (const bool pow2 : {false, true}) {
    for (const int group : {64, 128}) {
      for (const int h : {128, 1024, 4096}) {
        SCOPED_TRACE("H=" + std::to_string(h) + " GROUP=" + std::to_string(group));
        const auto x = random_bf16(static_cast<std::size_t>(kRows * h), 6);
        check({{"T", Dtype::bf16}, {"H", h}, {"GROUP", group}, {"POW2", pow2}}, h, group, x,
              scales_of(largest_of(x, static_cast<std::size_t>(group)), pow2));
      }
    }
    for (const int h : {1, 7, 128, 5001, 65536}) {
      SCOPED_TRACE("H=" + std::to_string(h));
      const auto x = random_bf16(static_cast<std::size_t>(kRows * h), 7);
      check({{"T", Dtype::bf16}, {"H", h}, {"SCALING", "token"}, {"POW2", pow2}}, h, h, x,
            scales_of(largest_of(x, static_cast<std::size_t>(h)), pow2));
    }
  }
}

TEST_F(Fp8QuantTest, AGivenScaleSaturates) {
  for (const int h : {1, 7, 128, 5001, 7168}) {
    SCOPED_TRACE("H=" + std::to_string(h));
    const DeviceArray scale(*driver_, std::vector<float>{0.005f});  // 448 times the scale is 2.24
    check({{"T", Dtype::bf16}, {"H", h}}, h, h, random_bf16(static_cast<std::size_t>(kRows * h), 8), {0.005f},
          scale.address());
  }
}

TEST_F(Fp8QuantTest, ATensorsScaleIsMadeOfThePartsThatAmaxFinds) {
  for (const int h : {1, 7, 128, 5001, 7168}) {
    for (const int parts : {1, 3, 8}) {
      SCOPED_TRACE("H=" + std::to_string(h) + " parts=" + std::to_string(parts));
      const auto x = random_bf16(static_cast<std::size_t>(kRows * h), 9);
      const auto rows = largest_of(x, static_cast<std::size_t>(h));
      std::vector<float> want(static_cast<std::size_t>(parts), 0.0f);
      for (std::size_t r = 0; r < rows.size(); ++r)
        want[r % want.size()] = std::max(want[r % want.size()], rows[r]);
      const DeviceArray dx(*driver_, x);
      const DeviceArray amax(*driver_, std::vector<float>(want.size(), NAN));
      const DeviceArray amax_double(*driver_, std::vector<double>(want.size(), NAN));
      launch(get_one("amax", {{"T", Dtype::bf16}, {"H", h}}), pointer(amax.address()), pointer(dx.address()),
             kRows, h, parts);
      launch(get_one("amax", {{"T", Dtype::bf16}, {"H", h}}, source::Which::reference),
             pointer(amax_double.address()), pointer(dx.address()), kRows, h, parts);
      EXPECT_EQ(amax.host(), want);
      EXPECT_EQ(amax_double.host(), std::vector<double>(want.begin(), want.end()));
      check({{"T", Dtype::bf16}, {"H", h}, {"SCALING", "tensor"}}, h, h, x,
            scales_of({*std::max_element(want.begin(), want.end())}, false), 0, amax.address(), parts);
    }
  }
}

}  // namespace
}  // namespace kiln::testing::fp8_quant

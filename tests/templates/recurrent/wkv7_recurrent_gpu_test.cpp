// wkv7_recurrent and its reference against a step loop on the CPU: both forms, fixed and variable lengths,
// initial and final states.
#include "templates/kernel_fixture.hpp"

namespace kiln::testing::wkv7_recurrent {
namespace {

constexpr int kHeads = 2;

std::vector<double> wide(const std::vector<float>& in) { return {in.begin(), in.end()}; }

/// Random bf16 values between low and high.
std::vector<std::uint16_t> uniform_bf16(std::size_t n, float low, float high, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<std::uint16_t> out(n);
  for (auto& v : out) v = float_to_bf16(uniform(random));
  return out;
}

struct Case {
  int k, v;
  bool kk_a;
  std::vector<int> lengths;
  bool varlen, initial;
};

class Wkv7RecurrentTest : public KernelTest {
 protected:
  void expect_right(const Case& c) {
    const std::string what = std::to_string(c.k) + " x " + std::to_string(c.v) + (c.kk_a ? " kk_a" : " a_b") +
                             (c.varlen ? " cu_seqlens" : "") + (c.initial ? " initial state" : "");
    const int sequences = static_cast<int>(c.lengths.size());
    std::vector<std::int64_t> cu = {0};
    for (const int length : c.lengths) cu.push_back(cu.back() + length);
    const std::int64_t tokens = cu.back();
    const auto rows = static_cast<std::size_t>(tokens * kHeads);
    const auto k_size = static_cast<std::size_t>(c.k), v_size = static_cast<std::size_t>(c.v);
    const auto state_size = static_cast<std::size_t>(sequences * kHeads) * k_size * v_size;

    const auto r = random_bf16(rows * k_size, 1), k = random_bf16(rows * k_size, 2),
               v = random_bf16(rows * v_size, 3), w = uniform_bf16(rows * k_size, -0.6f, -0.01f, 4),
               first = uniform_bf16(rows * k_size, 0.0f, 0.5f, 5),
               second = uniform_bf16(rows * k_size, -0.2f, 0.2f, 6);
    std::vector<float> initial(state_size);
    std::mt19937 random(7);
    for (auto& s : initial) s = std::normal_distribution<float>(0, 1)(random);
    const float scale = 0.25f;

    std::vector<double> o(rows * v_size), state = c.initial ? wide(initial) : std::vector<double>(state_size);
    for (int n = 0; n < sequences; ++n) {
      for (int h = 0; h < kHeads; ++h) {
        double* s = &state[static_cast<std::size_t>(n * kHeads + h) * k_size * v_size];
        for (auto t = cu[static_cast<std::size_t>(n)]; t < cu[static_cast<std::size_t>(n) + 1]; ++t) {
          const auto row = static_cast<std::size_t>(t * kHeads + h);
          const auto at = [&](const std::vector<std::uint16_t>& x, std::size_t i) {
            return static_cast<double>(bf16_to_float(x[row * k_size + i]));
          };
          for (std::size_t j = 0; j < v_size; ++j) {
            double a_s = 0, sum = 0;
            for (std::size_t i = 0; i < k_size; ++i)
              a_s += (c.kk_a ? -at(second, i) : at(first, i)) * s[i * v_size + j];
            for (std::size_t i = 0; i < k_size; ++i) {
              const double b = c.kk_a ? at(second, i) * at(first, i) : at(second, i);
              const double value = static_cast<double>(bf16_to_float(v[row * v_size + j]));
              s[i * v_size + j] = std::exp(at(w, i)) * s[i * v_size + j] + b * a_s + at(k, i) * value;
              sum += s[i * v_size + j] * at(r, i);
            }
            o[row * v_size + j] = sum * static_cast<double>(scale);
          }
        }
      }
    }

    const Pair pair = get("wkv7_recurrent", {{"T", Dtype::bf16},
                                             {"K", c.k},
                                             {"V", c.v},
                                             {"FORM", c.kk_a ? "kk_a" : "a_b"},
                                             {"VARLEN", c.varlen}});
    const DeviceArray dr(*driver_, r), dk(*driver_, k), dv(*driver_, v), dw(*driver_, w),
        dfirst(*driver_, first), dsecond(*driver_, second);
    const DeviceArray dinitial(*driver_, initial), dfinal(*driver_, std::vector<float>(state_size, NAN));
    const DeviceArray final_double(*driver_, std::vector<double>(state_size, NAN)),
        o_double(*driver_, std::vector<double>(o.size(), NAN));
    const DeviceArray out(*driver_, std::vector<std::uint16_t>(o.size(), 0xffff));
    const DeviceArray dcu(*driver_, cu);
    const auto call = [&](const runtime::LoadedKernel& kernel, void* to, void* to_state) {
      launch(kernel, to, pointer(dr), pointer(dw), pointer(dk), pointer(dv), pointer(dfirst), sequences,
             c.varlen ? tokens : std::int64_t{c.lengths[0]}, kHeads, c.kk_a ? null() : pointer(dsecond),
             c.kk_a ? pointer(dsecond) : null(), scale, c.initial ? pointer(dinitial) : null(), to_state,
             c.varlen ? pointer(dcu) : null());
    };
    call(*pair.reference, pointer(o_double), pointer(final_double));
    call(*pair.kernel, pointer(out), pointer(dfinal));
    EXPECT_LT(relative_rms(o_double.host(), o), 1e-12) << what;
    EXPECT_LT(relative_rms(final_double.host(), state), 1e-12) << what;
    EXPECT_LT(relative_rms(widened(out.host()), o), 2e-3) << what;
    EXPECT_LT(relative_rms(wide(dfinal.host()), state), 2e-5) << what;
  }
};

TEST_F(Wkv7RecurrentTest, AgreesWithTheCpuForEveryHeadSize) {
  for (const int size : {32, 60, 64, 100, 128, 256}) expect_right({size, size, true, {11, 11}, false, true});
  expect_right({60, 100, false, {9, 9}, false, true});
  expect_right({64, 32, true, {9, 9}, false, true});
}

TEST_F(Wkv7RecurrentTest, AgreesWithTheCpuInBothFormsAndWithAllLengths) {
  for (const bool kk_a : {false, true}) {
    for (const bool initial : {false, true}) {
      expect_right({64, 64, kk_a, {35, 35, 35}, false, initial});
      expect_right({64, 64, kk_a, {1, 1}, false, initial});
      expect_right({64, 64, kk_a, {0, 15, 1, 0, 0, 40, 8, 0}, true, initial});
    }
  }
}

}  // namespace
}  // namespace kiln::testing::wkv7_recurrent

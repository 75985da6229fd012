// The element-wise templates of RWKV7 and their references against double arithmetic on the CPU.
#include "templates/kernel_fixture.hpp"

namespace kiln::testing::rwkv7 {
namespace {

constexpr int kHeads = 3;

class Rwkv7Test : public KernelTest {
 protected:
  static double at(const std::vector<std::uint16_t>& x, std::size_t i) {
    return static_cast<double>(bf16_to_float(x[i]));
  }
  /// An output of the kernel, and the same output of its reference.
  struct Written {
    Written(const toolchain::Driver& driver, std::size_t n)
        : half(driver, std::vector<std::uint16_t>(n, 0xffff)), full(driver, std::vector<double>(n, NAN)) {}
    DeviceArray<std::uint16_t> half;
    DeviceArray<double> full;
  };
  static void expect_right(const Written& got, const std::vector<double>& want, const std::string& what) {
    EXPECT_LT(relative_rms(got.full.host(), want), 1e-12) << what;
    EXPECT_LT(relative_rms(widened(got.half.host()), want), 4e-3) << what;
  }
};

TEST_F(Rwkv7Test, ShiftMixAgreesWithTheCpuAtEverySequenceBoundary) {
  struct Case {
    std::vector<int> lengths;
    bool varlen;
  };
  for (const Case& c : {Case{{7, 7, 7}, false}, Case{{1, 1}, false}, Case{{0, 5, 1, 0, 0, 9, 2, 0}, true}}) {
    for (const int outputs : {1, 5, 6}) {
      for (const int d : {1, 24, 100}) {
        for (const bool given : {false, true}) {
          const std::string what = "D=" + std::to_string(d) + " OUTPUTS=" + std::to_string(outputs) +
                                   (c.varlen ? " cu_seqlens" : "") + (given ? " cache" : "");
          const int sequences = static_cast<int>(c.lengths.size());
          std::vector<std::int64_t> cu = {0};
          for (const int length : c.lengths) cu.push_back(cu.back() + length);
          const auto tokens = static_cast<std::size_t>(cu.back()), width = static_cast<std::size_t>(d);
          const auto n_out = static_cast<std::size_t>(outputs), n_seq = c.lengths.size();
          const auto x = random_bf16(tokens * width, 1), mu = random_bf16(n_out * width, 2),
                     cache = random_bf16(n_seq * width, 3);
          std::vector<double> want(n_out * tokens * width), last(n_seq * width);
          for (std::size_t n = 0; n < n_seq; ++n) {
            for (std::size_t i = 0; i < width; ++i) {
              double before = given ? at(cache, n * width + i) : 0.0;
              for (auto t = static_cast<std::size_t>(cu[n]); t < static_cast<std::size_t>(cu[n + 1]); ++t) {
                const double now = at(x, t * width + i);
                for (std::size_t j = 0; j < n_out; ++j)
                  want[(j * tokens + t) * width + i] = now + (before - now) * at(mu, j * width + i);
                before = now;
              }
              last[n * width + i] = before;
            }
          }
          const Pair pair = get("rwkv7_shift_mix",
                                {{"T", Dtype::bf16}, {"D", d}, {"OUTPUTS", outputs}, {"VARLEN", c.varlen}});
          const DeviceArray dx(*driver_, x), dmu(*driver_, mu), dcache(*driver_, cache);
          const DeviceArray dcu(*driver_, cu);
          const Written out(*driver_, want.size()), cache_out(*driver_, last.size());
          const auto call = [&](const runtime::LoadedKernel& kernel, void* to, void* to_cache) {
            launch(kernel, to, pointer(dx), pointer(dmu), sequences,
                   c.varlen ? cu.back() : std::int64_t{c.lengths[0]}, d, d, static_cast<int>(tokens) * d,
                   given ? pointer(dcache) : null(), to_cache, c.varlen ? pointer(dcu) : null());
          };
          call(*pair.reference, pointer(out.full), pointer(cache_out.full));
          call(*pair.kernel, pointer(out.half), pointer(cache_out.half));
          expect_right(out, want, what);
          EXPECT_EQ(cache_out.full.host(), last) << what;
          EXPECT_EQ(widened(cache_out.half.host()), last) << what;
        }
      }
    }
  }
}

TEST_F(Rwkv7Test, KprepAgreesWithTheCpu) {
  for (const int d : {1, 60, 64, 100, 255, 256}) {
    const auto width = static_cast<std::size_t>(d), heads = static_cast<std::size_t>(kHeads);
    const std::size_t tokens = 5, n = tokens * heads * width;
    const auto k = random_bf16(n, 1), a = random_bf16(n, 2), k_k = random_bf16(heads * width, 3),
               k_a = random_bf16(heads * width, 4);
    const double eps = static_cast<double>(1e-6f);
    std::vector<double> key(n), kk(n), b(n);
    for (std::size_t first = 0; first < n; first += width) {
      const std::size_t of = first % (heads * width);
      double squares = 0;
      for (std::size_t i = 0; i < width; ++i) {
        kk[first + i] = at(k, first + i) * at(k_k, of + i);
        squares += kk[first + i] * kk[first + i];
      }
      for (std::size_t i = 0; i < width; ++i) {
        key[first + i] = at(k, first + i) * (1 + (at(a, first + i) - 1) * at(k_a, of + i));
        kk[first + i] /= std::sqrt(squares + eps);
        b[first + i] = kk[first + i] * at(a, first + i);
      }
    }
    const Pair pair = get("rwkv7_kprep", {{"T", Dtype::bf16}, {"D", d}, {"WITH_B", true}});
    const DeviceArray dk(*driver_, k), da(*driver_, a), dk_k(*driver_, k_k), dk_a(*driver_, k_a);
    const Written to_key(*driver_, n), to_kk(*driver_, n), to_b(*driver_, n);
    const auto call = [&](const runtime::LoadedKernel& kernel, void* out, void* out_kk, void* out_b) {
      launch(kernel, out, out_kk, pointer(dk), pointer(da), pointer(dk_k), pointer(dk_a),
             static_cast<int>(tokens), kHeads, 1e-6f, out_b);
    };
    call(*pair.reference, pointer(to_key.full), pointer(to_kk.full), pointer(to_b.full));
    call(*pair.kernel, pointer(to_key.half), pointer(to_kk.half), pointer(to_b.half));
    expect_right(to_key, key, "k' D=" + std::to_string(d));
    expect_right(to_kk, kk, "kk D=" + std::to_string(d));
    expect_right(to_b, b, "b D=" + std::to_string(d));
  }
}

TEST_F(Rwkv7Test, OutAgreesWithTheCpuWithAndWithoutNorm) {
  for (const bool norm : {false, true}) {
    for (const int d : {4, 60, 64, 100, 255, 256}) {
      const auto width = static_cast<std::size_t>(d), heads = static_cast<std::size_t>(kHeads);
      const std::size_t tokens = 5, n = tokens * heads * width;
      const auto o = random_bf16(n, 1), r = random_bf16(n, 2), k = random_bf16(n, 3), v = random_bf16(n, 4),
                 g = random_bf16(n, 5), r_k = random_bf16(heads * width, 6),
                 weight = random_bf16(heads * width, 7), bias = random_bf16(heads * width, 8);
      const double eps = static_cast<double>(64e-5f);
      std::vector<double> want(n);
      for (std::size_t first = 0; first < n; first += width) {
        const std::size_t of = first % (heads * width);
        double bonus = 0, mean = 0, variance = 0;
        for (std::size_t i = 0; i < width; ++i) {
          bonus += at(r, first + i) * at(k, first + i) * at(r_k, of + i);
          mean += at(o, first + i) / d;
        }
        for (std::size_t i = 0; i < width; ++i) variance += std::pow(at(o, first + i) - mean, 2) / d;
        for (std::size_t i = 0; i < width; ++i) {
          const double y = at(o, first + i);
          const double z =
              norm ? (y - mean) / std::sqrt(variance + eps) * at(weight, of + i) + at(bias, of + i) : y;
          want[first + i] = (z + bonus * at(v, first + i)) * at(g, first + i);
        }
      }
      const Pair pair = get("rwkv7_out", {{"T", Dtype::bf16}, {"D", d}, {"NORM", norm}});
      const DeviceArray d_o(*driver_, o), d_r(*driver_, r), d_k(*driver_, k), d_v(*driver_, v),
          d_g(*driver_, g), d_r_k(*driver_, r_k), d_weight(*driver_, weight), d_bias(*driver_, bias);
      const Written out(*driver_, n);
      const auto call = [&](const runtime::LoadedKernel& kernel, void* to) {
        launch(kernel, to, pointer(d_o), pointer(d_r), pointer(d_k), pointer(d_v), pointer(d_g),
               pointer(d_r_k), static_cast<int>(tokens), kHeads, norm ? pointer(d_weight) : null(),
               norm ? pointer(d_bias) : null(), 64e-5f);
      };
      call(*pair.reference, pointer(out.full));
      call(*pair.kernel, pointer(out.half));
      expect_right(out, want, std::string(norm ? "NORM" : "plain") + " D=" + std::to_string(d));
    }
  }
}

}  // namespace
}  // namespace kiln::testing::rwkv7

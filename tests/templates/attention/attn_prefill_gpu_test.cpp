// attn_prefill and its reference against the CPU, with a plan that splits tiles.
#include <algorithm>
#include <limits>

#include "attention/plan.hpp"
#include "attention/work_list.hpp"
#include "templates/kernel_fixture.hpp"

namespace kiln::testing::attn_prefill {
namespace {

constexpr int kHeads = 2, kGroup = 3, kQHeads = kHeads * kGroup, kD = 64, kWorkers = 7, kTileRows = 64,
              kTileKv = 32;
constexpr std::uint16_t kNan = 0x7fff;
constexpr float kSoftCap = 2.0f;
// The requests' tokens of q and kv. The two rows of k and v after each request belong to none.
const std::vector<std::int32_t> kQo = {0, 40, 40, 49, 70}, kKv = {0, 300, 307, 313, 315},
                                kKvLen = {298, 5, 4, 0};
constexpr int kTokens = 70, kKvTokens = 315;

std::size_t index(int at) { return static_cast<std::size_t>(at); }
double value(std::uint16_t bits) { return static_cast<double>(bf16_to_float(bits)); }

struct Options {
  bool causal = false;
  int window_left = -1;
  bool soft_cap = false, alibi = false, mask = false;
};

class AttnPrefillTest : public KernelTest {
 protected:
  struct Want {
    std::vector<double> o, lse;
  };

  // Rows of k or v, NaN except for the requests' tokens.
  static std::vector<std::uint16_t> rows(unsigned seed) {
    const auto values = random_bf16(index(kKvTokens * kHeads * kD), seed);
    std::vector<std::uint16_t> out(values.size(), kNan);
    for (int r = 0; r < static_cast<int>(kKvLen.size()); ++r) {
      const auto begin = kKv[index(r)] * kHeads * kD, end = begin + kKvLen[index(r)] * kHeads * kD;
      std::copy(values.begin() + begin, values.begin() + end, out.begin() + begin);
    }
    return out;
  }
  static std::vector<std::int32_t> mask_indptr() {
    std::vector<std::int32_t> out = {0};
    for (int r = 0; r < static_cast<int>(kKvLen.size()); ++r) {
      out.push_back(out.back() + ((kQo[index(r + 1)] - kQo[index(r)]) * kKvLen[index(r)] + 7) / 8);
    }
    return out;
  }
  static bool sees(const Options& options, int request, int qo, int kv,
                   const std::vector<std::uint8_t>& mask) {
    const int qo_len = kQo[index(request + 1)] - kQo[index(request)], kv_len = kKvLen[index(request)];
    if (options.window_left >= 0 && kv + qo_len + options.window_left < kv_len + qo) return false;
    if (!options.mask) return !options.causal || kv <= qo + kv_len - qo_len;
    const int bit = qo * kv_len + kv;
    return (mask[index(mask_indptr()[index(request)] + bit / 8)] >> (bit % 8) & 1) != 0;
  }
  static float slope(int head) { return 0.05f * static_cast<float>(head + 1); }

  static Want expected(const Options& options, const std::vector<std::uint16_t>& q,
                       const std::vector<std::uint16_t>& k, const std::vector<std::uint16_t>& v,
                       const std::vector<std::uint8_t>& mask) {
    Want out;
    for (int token = 0; token < kTokens; ++token) {
      int r = 0;
      while (token >= kQo[index(r + 1)]) ++r;
      const int qo = token - kQo[index(r)];
      for (int head = 0; head < kQHeads; ++head) {
        std::vector<double> mean(kD, 0.0);
        double sum = 0;
        for (int kv = 0; kv < kKvLen[index(r)]; ++kv) {
          if (!sees(options, r, qo, kv, mask)) continue;
          const int at = ((kKv[index(r)] + kv) * kHeads + head / kGroup) * kD;
          double x = 0;
          for (int i = 0; i < kD; ++i) {
            x += value(q[index((token * kQHeads + head) * kD + i)]) * value(k[index(at + i)]);
          }
          x /= std::sqrt(double{kD});
          if (options.alibi) x += static_cast<double>(slope(head)) * (kv - qo);
          if (options.soft_cap) x = double{kSoftCap} * std::tanh(x / double{kSoftCap});
          const double weight = std::exp(x);
          sum += weight;
          for (int i = 0; i < kD; ++i) mean[index(i)] += weight * value(v[index(at + i)]);
        }
        for (const double m : mean) out.o.push_back(sum > 0 ? m / sum : 0.0);
        out.lse.push_back(std::log2(sum));
      }
    }
    return out;
  }
  static std::vector<std::int32_t> plan(attention::KernelShape shape, const Options& options) {
    shape.tile_cost = 0, shape.min_kv_blocks = 1;  // so that tiles are split
    attention::Limits limits;
    limits.max_requests = 4, limits.max_tokens = kTokens, limits.kv_heads = kHeads, limits.workers = kWorkers;
    attention::Lengths lengths;
    lengths.requests = 4;
    lengths.qo_indptr = kQo.data(), lengths.kv_indptr = kKv.data(), lengths.kv_len = kKvLen.data();
    lengths.window_left = options.window_left;
    std::vector<std::int32_t> out(1 << 12);
    EXPECT_GT(attention::write_work_list(shape, limits, lengths, out).slots, 0);
    return out;
  }
  // Finite values must agree within the tolerance; other values must be equal.
  static void expect_lse(const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (std::isfinite(want[i])) {
        EXPECT_NEAR(got[i], want[i], tolerance) << i;
      } else {
        EXPECT_EQ(got[i], want[i]) << i;
      }
    }
  }

  void check(const Options& options) {
    const auto q = random_bf16(index(kTokens * kQHeads * kD), 1), k = rows(2), v = rows(3);
    std::vector<std::uint8_t> mask(index((mask_indptr().back() + 3) / 4 * 4));
    for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = static_cast<std::uint8_t>(i * 151 >> 2);
    std::vector<float> slopes;
    for (int head = 0; head < kQHeads; ++head) slopes.push_back(slope(head));
    const Want want = expected(options, q, k, v, mask);

    const Pair pair = get("attn_prefill", {{"T", Dtype::bf16},
                                           {"D", kD},
                                           {"GROUP", kGroup},
                                           {"CAUSAL", options.causal},
                                           {"WINDOW", options.window_left >= 0},
                                           {"SOFT_CAP", options.soft_cap},
                                           {"ALIBI", options.alibi},
                                           {"MASK", options.mask},
                                           {"TILE_ROWS", kTileRows},
                                           {"TILE_KV", kTileKv},
                                           {"WARPS", 4}});
    const DeviceArray q_device(*driver_, q), k_device(*driver_, k), v_device(*driver_, v);
    const DeviceArray slopes_device(*driver_, slopes);
    const DeviceArray mask_device(*driver_, mask);
    const DeviceArray indptr_device(*driver_, mask_indptr()),
        plan_device(*driver_, plan(attention::shape_of(pair.kernel->work_list().kernel), options));
    const DeviceArray workspace(*driver_,
                                std::vector<float>(index(2 * kWorkers * kTileRows * (kD + 2)), NAN));
    const DeviceArray o(*driver_, std::vector<std::uint16_t>(want.o.size(), kNan));
    const DeviceArray lse(*driver_, std::vector<float>(want.lse.size(), 1.0f));
    const DeviceArray o_double(*driver_, std::vector<double>(want.o.size(), NAN));
    const DeviceArray lse_double(*driver_, std::vector<double>(want.lse.size(), 1.0));
    const auto run = [&](const runtime::LoadedKernel& kernel, void* to, void* to_lse) {
      launch(kernel, to, pointer(q_device), pointer(k_device), pointer(v_device), pointer(plan_device),
             pointer(workspace), kWorkers, kHeads, kKvTokens, kQHeads * kD, kD, kQHeads * kD, kD, kHeads * kD,
             kD, kHeads * kD, kD, 0.0f, to_lse, options.soft_cap ? kSoftCap : 0.0f, options.window_left,
             options.alibi ? pointer(slopes_device) : nullptr, options.mask ? pointer(mask_device) : nullptr,
             options.mask ? pointer(indptr_device) : nullptr);
    };
    run(*pair.reference, pointer(o_double), pointer(lse_double));
    run(*pair.kernel, pointer(o), pointer(lse));
    run(*pair.kernel, pointer(o), pointer(lse));  // the first launch has restored the plan
    EXPECT_LT(relative_rms(o_double.host(), want.o), 1e-12);
    EXPECT_LT(relative_rms(widened(o.host()), want.o), 4e-3);
    expect_lse(lse_double.host(), want.lse, 1e-10);
    const auto rounded = lse.host();
    expect_lse({rounded.begin(), rounded.end()}, want.lse, 1e-4);
  }
};

TEST_F(AttnPrefillTest, SeesAllTokensOfItsRequest) { check({}); }

TEST_F(AttnPrefillTest, IsCausalAndAlignedAtTheEnd) {
  Options options;
  options.causal = true;
  check(options);
}

TEST_F(AttnPrefillTest, CapsWhatAlibiHasBiasedInsideItsWindow) {
  Options options;
  options.causal = options.soft_cap = options.alibi = true;
  options.window_left = 50;
  check(options);
}

TEST_F(AttnPrefillTest, FollowsAMaskInsteadOfCausality) {
  Options options;
  options.causal = options.mask = true;
  check(options);
  options.window_left = 200;
  check(options);
}

}  // namespace
}  // namespace kiln::testing::attn_prefill

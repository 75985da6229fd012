// attn_decode_paged and its reference against the CPU, with a plan that splits a request.
#include <limits>

#include "attention/plan.hpp"
#include "attention/work_list.hpp"
#include "templates/kernel_fixture.hpp"

namespace kiln::testing::attn_decode_paged {
namespace {

constexpr int kHeads = 2, kGroup = 3, kQHeads = kHeads * kGroup, kD = 64, kPageSize = 16, kWorkers = 5;
constexpr std::uint16_t kNan = 0x7fff;
const std::vector<int> kLengths = {300, 0, 5};
const std::vector<std::int32_t> kIndptr = {0, 19, 19, 20}, kLastPageLen = {12, 0, 5};

std::size_t index(int at) { return static_cast<std::size_t>(at); }

class AttnDecodePagedTest : public KernelTest {
 protected:
  // The requests' pages in reverse order. Page 0 belongs to no request.
  static std::vector<std::int32_t> indices() {
    std::vector<std::int32_t> out;
    for (int i = 0; i < kIndptr.back(); ++i) out.push_back(kIndptr.back() - i);
    return out;
  }
  // The offset of a token's element 0 in a cache [pages, page_size, heads, D].
  static int place(int request, int token, int head) {
    const int page = indices()[index(kIndptr[index(request)] + token / kPageSize)];
    return ((page * kPageSize + token % kPageSize) * kHeads + head) * kD;
  }
  // A cache that is NaN except for the requests' tokens.
  static std::vector<std::uint16_t> cache(unsigned seed) {
    const int elements = (kIndptr.back() + 1) * kPageSize * kHeads * kD;
    const auto values = random_bf16(index(elements), seed);
    std::vector<std::uint16_t> out(values.size(), kNan);
    for (int r = 0; r < static_cast<int>(kLengths.size()); ++r) {
      for (int token = 0; token < kLengths[index(r)]; ++token) {
        for (int i = 0; i < kHeads * kD; ++i) {
          out[index(place(r, token, 0) + i)] = values[index(place(r, token, 0) + i)];
        }
      }
    }
    return out;
  }
  struct Want {
    std::vector<double> o, lse;
  };
  static Want expected(const std::vector<std::uint16_t>& q, const std::vector<std::uint16_t>& k,
                       const std::vector<std::uint16_t>& v, int window_left) {
    Want out;
    for (int r = 0; r < static_cast<int>(kLengths.size()); ++r) {
      const int n = kLengths[index(r)], first = window_left < 0 ? 0 : std::max(0, n - 1 - window_left);
      for (int head = 0; head < kQHeads; ++head) {
        std::vector<double> mean(kD, 0.0);
        double sum = 0;
        for (int token = first; token < n; ++token) {
          const int at = place(r, token, head / kGroup);
          double x = 0;
          for (int i = 0; i < kD; ++i) {
            x += static_cast<double>(bf16_to_float(q[index((r * kQHeads + head) * kD + i)])) *
                 static_cast<double>(bf16_to_float(k[index(at + i)]));
          }
          const double weight = std::exp(x / std::sqrt(double{kD}));
          sum += weight;
          for (int i = 0; i < kD; ++i) {
            mean[index(i)] += weight * static_cast<double>(bf16_to_float(v[index(at + i)]));
          }
        }
        for (const double m : mean) out.o.push_back(sum > 0 ? m / sum : 0.0);
        out.lse.push_back(std::log2(sum));
      }
    }
    return out;
  }
  static std::vector<std::int32_t> plan(const attention::KernelShape& shape, int window_left) {
    attention::Limits limits;
    limits.max_requests = limits.max_tokens = static_cast<std::int64_t>(kLengths.size());
    limits.kv_heads = kHeads;
    limits.workers = kWorkers;
    attention::Lengths lengths;
    lengths.requests = static_cast<std::int64_t>(kLengths.size());
    lengths.kv_indptr = kIndptr.data();
    lengths.last_page_len = kLastPageLen.data();
    lengths.page_size = kPageSize;
    lengths.window_left = window_left;
    std::vector<std::int32_t> out(static_cast<std::size_t>(attention::work_list_words(shape, limits)));
    EXPECT_GT(attention::write_work_list(shape, limits, lengths, out).words, 0);
    return out;
  }
};

TEST_F(AttnDecodePagedTest, AttendsToThePagesOfEachRequestAndMergesItsParts) {
  const auto q = random_bf16(kLengths.size() * kQHeads * kD, 1), k = cache(2), v = cache(3);
  const Pair pair =
      get("attn_decode_paged", {{"T", Dtype::bf16}, {"D", kD}, {"GROUP", kGroup}, {"WARPS", 4}});
  const DeviceArray q_device(*driver_, q), k_device(*driver_, k), v_device(*driver_, v);
  const DeviceArray indices_device(*driver_, indices());
  const attention::KernelShape shape = attention::shape_of(pair.kernel->work_list().kernel);
  for (const int window_left : {-1, 20}) {
    const Want want = expected(q, k, v, window_left);
    const DeviceArray plan_device(*driver_, plan(shape, window_left));
    const DeviceArray workspace(*driver_, std::vector<float>(2 * kWorkers * kGroup * (kD + 4), NAN));
    const DeviceArray o(*driver_, std::vector<std::uint16_t>(want.o.size(), kNan));
    const DeviceArray lse(*driver_, std::vector<float>(want.lse.size(), 1.0f));
    const DeviceArray o_double(*driver_, std::vector<double>(want.o.size(), NAN));
    const DeviceArray lse_double(*driver_, std::vector<double>(want.lse.size(), 1.0));
    const auto run = [&](const runtime::LoadedKernel& kernel, void* to, void* to_lse) {
      const int token = kHeads * kD, page = kPageSize * token;
      launch(kernel, to, pointer(q_device), pointer(k_device), pointer(v_device), pointer(indices_device),
             pointer(plan_device), pointer(workspace), kWorkers, kHeads, kPageSize, kQHeads * kD, kD,
             kQHeads * kD, kD, page, token, kD, page, token, kD, 0.0f, to_lse, 0.0f, window_left);
    };
    run(*pair.reference, pointer(o_double), pointer(lse_double));
    run(*pair.kernel, pointer(o), pointer(lse));
    run(*pair.kernel, pointer(o), pointer(lse));  // the first launch has restored the plan
    EXPECT_LT(relative_rms(o_double.host(), want.o), 1e-12) << window_left;
    EXPECT_LT(relative_rms(widened(o.host()), want.o), 4e-3) << window_left;
    for (std::size_t i = 0; i < want.lse.size(); ++i) {
      if (std::isinf(want.lse[i])) {
        EXPECT_EQ(lse_double.host()[i], want.lse[i]);
        EXPECT_EQ(static_cast<double>(lse.host()[i]), want.lse[i]);
      } else {
        EXPECT_NEAR(lse_double.host()[i], want.lse[i], 1e-11);
        EXPECT_NEAR(static_cast<double>(lse.host()[i]), want.lse[i], 1e-4);
      }
    }
  }
}

}  // namespace
}  // namespace kiln::testing::attn_decode_paged

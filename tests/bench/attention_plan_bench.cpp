// Measures how long the host takes to plan one attention launch, beside a memcpy of the plan in the same
// process. The budget is 50 us for 256 requests.
// Figures are medians of rounds that take turns. Consecutive rounds use different batches of the same kind,
// so that the CPU cannot learn the branches of one batch.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "attention/plan.hpp"

namespace {

using namespace kiln::attention;
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 401, kBatches = 16;
constexpr std::int64_t kSms = 132, kDecodeWorkers = 128;

struct Batch {
  std::vector<std::int32_t> qo{0}, kv{0};
};

struct Case {
  std::string name;
  KernelShape shape;
  std::int64_t kv_heads, workers, window_left;
  std::function<void(Batch&, std::mt19937&)> add;  ///< adds one request
  int requests = 256;
};

std::int32_t draw(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<std::int32_t>(low, high)(random);
}

void add(Batch& batch, std::int32_t qo, std::int32_t kv) {
  batch.qo.push_back(batch.qo.back() + qo);
  batch.kv.push_back(batch.kv.back() + kv);
}

double us_of(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

void run(const Case& one) {
  std::mt19937 random(1);
  std::vector<Batch> batches(kBatches);
  Limits limits{one.requests, 1, one.kv_heads, one.workers};
  for (Batch& batch : batches) {
    for (int i = 0; i < one.requests; ++i) one.add(batch, random);
    limits.max_tokens = std::max<std::int64_t>(limits.max_tokens, batch.qo.back());
  }
  std::vector<std::int32_t> plan_buffer(static_cast<std::size_t>(work_list_words(one.shape, limits))),
      copy(plan_buffer.size());
  std::vector<double> planning, copying;
  Summary last;
  for (int i = 0; i < kRounds; ++i) {
    const Batch& batch = batches[static_cast<std::size_t>(i % kBatches)];
    const Lengths lengths{.requests = one.requests,
                          .qo_indptr = batch.qo.data(),
                          .kv_indptr = batch.kv.data(),
                          .window_left = one.window_left};
    planning.push_back(us_of([&] { last = write_work_list(one.shape, limits, lengths, plan_buffer); }));
    copying.push_back(us_of(
        [&] { std::memcpy(copy.data(), plan_buffer.data(), static_cast<std::size_t>(last.words) * 4); }));
  }
  std::printf("%-58s %7lld %6lld %8.1f %8.1f %8.1f %6.1f\n", one.name.c_str(),
              static_cast<long long>(last.items), static_cast<long long>(last.slots),
              static_cast<double>(last.words) * 4 / 1024, median(planning), median(copying),
              median(planning) / median(copying));
}

}  // namespace

int main() {
  // Values of the manifests of attn_decode_paged and attn_prefill for heads of 128 elements on an H200.
  const KernelShape decode{.tile_rows = 4,
                           .tile_kv = 128,
                           .group = 4,
                           .causal = true,
                           .window = true,
                           .tile_cost = 0,
                           .min_kv_blocks = 1,
                           .heads_together = true};
  const KernelShape prefill{.tile_rows = 128,
                            .tile_kv = 64,
                            .group = 4,
                            .causal = true,
                            .tile_cost = 1,
                            .min_kv_blocks = 3,
                            .tiles_together = true};
  const auto one_token = [](Batch& b, std::mt19937& r) { add(b, 1, draw(r, 1, 8192)); };
  const auto prompts = [](std::int32_t tokens) {
    return [tokens](Batch& b, std::mt19937&) { add(b, tokens, tokens); };
  };
  std::printf("%-58s %7s %6s %8s %8s %8s %6s\n", "", "items", "slots", "KiB", "plan us", "copy us", "ratio");
  run({"decode, 256 requests, kv 1..8k, 8 kv heads", decode, 8, kDecodeWorkers, -1, one_token});
  run({"decode, 256 requests, kv 1..8k, 1 kv head", decode, 1, kDecodeWorkers, -1, one_token});
  run({"decode, 256 requests, kv 1..8k, 8 kv heads, window 1k", decode, 8, kDecodeWorkers, 1024, one_token});
  run({"decode, 1 request, kv 1..8k, 8 kv heads", decode, 8, kDecodeWorkers, -1, one_token, 1});
  run({"prefill, causal, 256 requests of 1..127 tokens, 8 kv heads", prefill, 8, 2 * kSms, -1,
       [](Batch& b, std::mt19937& r) {
         const std::int32_t tokens = draw(r, 1, 127);
         add(b, tokens, tokens);
       }});
  KernelShape own_heads = prefill;
  own_heads.group = 1;
  run({"prefill, causal, 256 chunks of 1..512 tokens, 32 kv heads", own_heads, 32, 2 * kSms, -1,
       [](Batch& b, std::mt19937& r) {
         const std::int32_t tokens = draw(r, 1, 512);
         add(b, tokens, tokens);
       }});
  run({"255 decodes and a chunk of 8k tokens, causal, 8 kv heads", prefill, 8, 2 * kSms, -1,
       [](Batch& b, std::mt19937& r) {
         b.qo.size() == 1 ? add(b, 8192, 16384) : add(b, 1, draw(r, 1, 8192));
       }});
  run({"prefill, causal, 256 requests of 1k tokens, 8 kv heads", prefill, 8, 2 * kSms, -1, prompts(1024)});
  run({"prefill, causal, 256 requests of 4k tokens, 8 kv heads", prefill, 8, 2 * kSms, -1, prompts(4096)});
}

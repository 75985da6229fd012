// Plans of attention launches through the public API: the manifest's [work_list] reaches the planner,
// and no driver call is made.
#include <array>

#include "attention/layout.hpp"
#include "runtime/fake_runtime.hpp"
#include "templates/work_list/shape.h"

namespace kiln::testing {
namespace {

using Indptr = std::vector<std::int32_t>;

class AttentionPlan : public FakeRuntime {
 protected:
  static constexpr const char* kToml = R"toml(
[param.WINDOW]
kind = "bool"
default = false
[param.TOGETHER]
kind = "bool"
default = false
[export]
ROWS = "ns::Rows<{N}>::value"
[[arg]]
name = "out"
type = "ptr<f32>"
access = "write"
shape = ["qo_tokens"]
[[arg]]
name = "plan"
type = "ptr<i32>"
access = "readwrite"
[[arg]]
name = "partial"
type = "ptr<f32>"
access = "write"
shape = ["2 * workers", "N", "9"]
[[arg]]
name = "workers"
type = "i32"
value = "3 * dev.sms"
[[arg]]
name = "kv_heads"
type = "i32"
[work_list]
kind = "attention"
argument = "plan"
workspace = "partial"
workers = "workers"
tile_rows = "ROWS"
tile_kv = 16
group = 2
causal = 1
window = "WINDOW"
tile_cost = 0
min_units = 1
tiles_together = "TOGETHER"
[work_list.run]
requests = 4
qo_tokens = 100
kv_tokens = 100
kv_heads = "kv_heads"
[launch]
grid = ["workers"]
block = [32]
)toml";
  static constexpr const char* kSource =
      "namespace ns { template <int N> struct Rows { static constexpr int value = 2 * N; }; }\n"
      "template <int N> __global__ void f(float* out, int* plan, float* partial, int workers, int kv_heads) "
      "{\n"
      "  out[0] = plan[0] + partial[0] + workers + kv_heads + N;\n}\n";

  void SetUp() override {
    FakeRuntime::SetUp();
    if (IsSkipped()) return;
    service_.emplace(options());
    add(*service_, "attend", kToml, kSource);
    add(*service_, "plain", "[[arg]]\nname = \"n\"\ntype = \"i32\"\n[launch]\ngrid = [1]\nblock = [1]\n",
        "template <int N> __global__ void f(int n) { }\n");
  }
  Kernel attend(int n = 4, bool window = false, bool together = false) {
    return service_->open("attend").get(n, window, together);
  }
  static AttentionLimits limits() {
    AttentionLimits out;
    out.max_requests = 4, out.max_tokens = 64, out.kv_heads = 2, out.workers = 6;
    return out;
  }
  static AttentionLengths lengths(const Indptr& qo, const Indptr& kv) {
    AttentionLengths out;
    out.requests = static_cast<int>(kv.size()) - 1;
    out.qo_indptr = qo.data(), out.kv_indptr = kv.data();
    return out;
  }

  std::optional<Service> service_;
};

TEST_F(AttentionPlan, SizesFollowFromKernelAndLimits) {
  const AttentionPlanner planner(attend(4), limits());
  EXPECT_EQ(planner.workers(), 6);
  EXPECT_EQ(planner.workspace_bytes(), 2u * 6 * 4 * 9 * 4);
  // Words of a plan: a header of 16, two tables of 8, 12 for each item, 4 for each of 4 requests. Items:
  // - the first items of 6 workers
  // - for each of 2 kv heads, the tiles of 8 rows in 64 tokens * 2 heads, and one more for each request
  // - 6 cuts
  EXPECT_EQ(planner.plan_bytes(), 4u * (16 + 2 * 8 + 12 * (6 + (64 * 2 / 8 + 4) * 2 + 6) + 4 * 4));
  EXPECT_LT(AttentionPlanner(attend(8), limits()).plan_bytes(), planner.plan_bytes());
  // With tiles together: one item for each request and kv head, and at most three more for each worker.
  EXPECT_EQ(AttentionPlanner(attend(4, false, true), limits()).plan_bytes(),
            4u * (16 + 2 * 8 + 12 * (6 + 4 * 2 + 3 * 6) + 4 * 4));
}

TEST_F(AttentionPlan, SaysForWhichShapeItIsWhereTheDeviceMayWriteOthers) {
  const auto shape = [&](const char* name, const std::string& toml) {
    add(*service_, name, toml, kSource);
    const AttentionPlanner planner(service_->open(name).get(4, false, false), limits());
    std::vector<std::int32_t> words(planner.plan_bytes() / 4);
    planner.plan(AttentionLengths{}, words.data());
    return std::vector(words.begin() + 11, words.begin() + 16);
  };
  const std::string toml = kToml;
  EXPECT_EQ(shape("host", toml), std::vector<std::int32_t>(5));
  const auto words =
      shape("device", std::string(toml).replace(toml.find("argument = "), 0, "on = \"device\"\n"));
  work_list::Shape got;
  ASSERT_TRUE(work_list::unpack({{words[0], words[1], words[2]}}, got));
  EXPECT_EQ(got.tile_rows, 8);
  EXPECT_EQ(got.tile_kv, 16);
  EXPECT_EQ(got.group, 2);
  EXPECT_EQ(got.min_kv_blocks, 1);
  EXPECT_EQ(got.tile_cost, 0);
  EXPECT_TRUE(got.causal);
  EXPECT_FALSE(got.window || got.tiles_together || got.heads_together);
  EXPECT_EQ(words[3], 4);
  EXPECT_EQ(words[4], 64);
}

TEST_F(AttentionPlan, WhatTheCallerLeavesComesFromTheManifestAndTheDevice) {
  AttentionLimits limits;
  limits.max_requests = 4, limits.kv_heads = 1;
  const AttentionPlanner planner(attend(), limits);
  int sms = 0;
  ASSERT_EQ(cu().cuDeviceGetAttribute(&sms, 16, 0), 0);
  EXPECT_EQ(planner.workers(), 3 * sms);
  std::vector<std::int32_t> words(planner.plan_bytes() / 4);
  const Indptr five{0, 1, 2, 3, 5};
  expect_error(Errc::invalid_argument, {"5 tokens of q", "max_tokens = 4"},
               [&] { planner.plan(lengths(five, five), words.data()); });
}

TEST_F(AttentionPlan, PlansWithWhatTheManifestSaysOfTheKernel) {
  const AttentionPlanner planner(attend(4), limits());
  std::vector<std::int32_t> words(planner.plan_bytes() / 4, -7);
  const Indptr qo{0, 6, 7}, kv{0, 40, 40};
  const auto plan = planner.plan(lengths(qo, kv), words.data());
  EXPECT_EQ(words[0], attention::made_for(8, 16, 2, true)) << "tile_rows is an export";
  EXPECT_EQ(words[1], 6) << "workers";
  EXPECT_EQ(words[2], 2) << "kv_heads";
  EXPECT_EQ(words[3], -1) << "window_left";
  EXPECT_EQ(plan.bytes, 4u * (static_cast<unsigned>(words[8]) + 2 * 4)) << "the requests are the last";
  EXPECT_EQ(words[plan.bytes / 4], -7);
  ASSERT_GE(plan.items, 6u);
  // 12 rows are two tiles. The first tile has tokens 0 to 3; token 3 sees kv tokens 0 to 3 + 40 - 6.
  std::int32_t first_tile_end = 0;
  for (std::size_t i = 0; i < plan.items; ++i) {
    const std::int32_t* item = words.data() + 16 + 2 * 8 + 12 * (6 + i);
    if (item[0] == 0 && item[1] == 0 && item[2] == 0) first_tile_end = std::max(first_tile_end, item[8]);
  }
  EXPECT_EQ(first_tile_end, 38);
}

TEST_F(AttentionPlan, HasTilesTogetherWhereTheManifestSaysSo) {
  AttentionLimits one = limits();
  one.workers = 1;
  const AttentionPlanner planner(attend(4, false, true), one);
  std::vector<std::int32_t> words(planner.plan_bytes() / 4);
  const Indptr qo{0, 6, 7}, kv{0, 40, 40};
  EXPECT_EQ(planner.plan(lengths(qo, kv), words.data()).items, 4u) << "two requests, two heads";
  EXPECT_EQ(words[0], attention::made_for(8, 16, 2, true, true));
  EXPECT_EQ(words[16 + 2 * 4 + 12 + 9], -2) << "two tiles";
}

TEST_F(AttentionPlan, AWindowIsOfTheSpecialisation) {
  std::vector<std::int32_t> words(AttentionPlanner(attend(), limits()).plan_bytes() / 4);
  const Indptr qo{0, 1}, kv{0, 64};
  AttentionLengths batch = lengths(qo, kv);
  batch.window_left = 10;
  expect_error(Errc::invalid_argument,
               {"attend N=4 WINDOW=false TOGETHER=false: ", "window_left = 10", "without a window"},
               [&] { AttentionPlanner(attend(), limits()).plan(batch, words.data()); });
  AttentionPlanner(attend(4, true), limits()).plan(batch, words.data());
  EXPECT_EQ(words[16 + 16 + 7], 48) << "kv_begin of the first item";
}

TEST_F(AttentionPlan, AZeroedStructAsksForAWindowThatShowsATokenItselfOnly) {
  const Indptr qo{0, 1}, kv{0, 64};
  kiln_attention_lengths zeroed{};
  zeroed.struct_size = sizeof zeroed;
  zeroed.requests = 1, zeroed.qo_indptr = qo.data(), zeroed.kv_indptr = kv.data();
  std::vector<std::int32_t> words(AttentionPlanner(attend(), limits()).plan_bytes() / 4);
  const auto plan = [&](Kernel kernel) {
    const AttentionLimits of = limits();
    return kiln_kernel_attention_plan(kernel.handle(), &of, &zeroed, words.data(), 4 * words.size(), nullptr);
  };
  EXPECT_EQ(plan(attend()), static_cast<kiln_status>(Errc::invalid_argument))
      << "without a window it is refused";
  EXPECT_EQ(plan(attend(4, true)), KILN_OK);
  EXPECT_EQ(words[3], 0) << "the launch is held to it";
  EXPECT_EQ(words[6], -1) << "causal is a right window of 0";
  EXPECT_EQ(AttentionLengths().window_left, -1) << "off, in C++";
  EXPECT_EQ(AttentionLengths().window_right, -1);
}

TEST_F(AttentionPlan, MakesNoDriverCallAlsoWhileAStreamIsCaptured) {
  const AttentionPlanner planner(attend(), limits());
  std::vector<std::int32_t> words(planner.plan_bytes() / 4);
  const Indptr qo{0, 6}, kv{0, 40};
  const CaptureScope capture;
  EXPECT_EQ(driver_calls([&] { planner.plan(lengths(qo, kv), words.data()); }), 0u);
}

TEST_F(AttentionPlan, ALaunchTakesTheArgumentsAlone) {
  const Kernel kernel = attend();
  kernel(make_stream(), device_pointer<float>(), device_pointer<int>(0x20000), device_pointer<float>(0x30000),
         6, 2);
  EXPECT_EQ(argument<int>(last_launch(), 3), 6);
  EXPECT_EQ(last_launch().grid[0], 6u);
  expect_error(Errc::invalid_argument, {"expected (out, plan, partial, workers, kv_heads)"},
               [&] { kernel(nullptr, device_pointer<float>(), nullptr, nullptr, 6, 2, 4, 100, 100); });
}

TEST_F(AttentionPlan, ErrorsNameTheKernelAndWhatWasAllowed) {
  const Kernel plain = service_->open("plain").get(1);
  expect_error(Errc::invalid_argument,
               {"plain N=1: ", "template 'plain' has no [work_list] of kind \"attention\""},
               [&] { AttentionPlanner(plain, limits()); });
  AttentionLimits none = limits();
  none.kv_heads = 0;
  expect_error(Errc::invalid_argument, {"attend N=4", "kv_heads = 0 must be 1 to"},
               [&] { AttentionPlanner(attend(), none); });
  const AttentionPlanner planner(attend(), limits());
  std::vector<std::int32_t> words(planner.plan_bytes() / 4, -7);
  const Indptr shrinks{0, 6, 5}, kv{0, 40, 41};
  expect_error(Errc::invalid_argument, {"qo_indptr[2] = 5 is below qo_indptr[1] = 6"},
               [&] { planner.plan(lengths(shrinks, kv), words.data()); });
  EXPECT_EQ(words, std::vector<std::int32_t>(words.size(), -7));
  expect_error(Errc::invalid_argument, {"buffer is null"}, [&] { planner.plan(lengths(kv, kv), nullptr); });
  expect_error(Errc::invalid_argument, {"buffer is not aligned to 4 bytes"},
               [&] { planner.plan(lengths(kv, kv), reinterpret_cast<char*>(words.data()) + 2); });
  EXPECT_EQ(words, std::vector<std::int32_t>(words.size(), -7));
}

}  // namespace
}  // namespace kiln::testing

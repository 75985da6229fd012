// [plan]: one row for every rule.
#include "manifest_text.hpp"

namespace kiln::source {
namespace {

const std::string kArguments = R"toml([[arg]]
name = "q"
type = "ptr<T>"
shape = ["qo_tokens", "H"]
[[arg]]
name = "plan"
type = "ptr<i32>"
access = "readwrite"
[[arg]]
name = "partial"
type = "ptr<f32>"
access = "write"
shape = ["2 * workers", "H + 1"]
[[arg]]
name = "workers"
type = "i32"
value = "2 * dev.sms"
[[arg]]
name = "kv_heads"
type = "i32"
value = 8
[[arg]]
name = "lengths"
type = "ptr<i32>"
shape = ["requests + 1"]
fill = "plan(kv_indptr)"
)toml";

const std::string kPlan = R"toml([plan]
kind = "attention"
argument = "plan"
workspace = "partial"
workers = "workers"
tile_rows = "CHUNKS"
tile_kv = 64
group = "H / 8"
causal = "ACT == ACT.silu"
[plan.run]
requests = 4
qo_tokens = "requests * 100"
kv_tokens = "qo_tokens * 2"
kv_heads = "kv_heads"
[cost]
read = "(qo_tokens + kv_tokens) * H"
write = "qo_tokens * H"
)toml";

/// The small manifest with a plan, in which `from` is replaced.
std::string planned(const std::string& from = "", const std::string& to = "") {
  std::string out = changed("[launch]", kArguments + "[launch]") + kPlan;
  if (from.empty()) return out;
  const auto at = out.find(from, out.find("name = \"q\""));
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? out : out.replace(at, from.size(), to);
}

TEST(ManifestPlan, NamesItsArgumentsAndWhatTheKernelFixes) {
  const Manifest m = parse(planned());
  ASSERT_TRUE(m.plan);
  EXPECT_EQ(m.plan->kind, "attention");
  EXPECT_EQ(m.arguments[static_cast<std::size_t>(m.plan->argument)].name, "plan");
  EXPECT_EQ(m.arguments[static_cast<std::size_t>(m.plan->workspace)].name, "partial");
  EXPECT_EQ(m.arguments[static_cast<std::size_t>(m.plan->workers)].name, "workers");
  EXPECT_EQ(m.plan->of("tile_rows").text(), "CHUNKS");
  EXPECT_EQ(m.plan->of("tile_kv").constant_value(), 64);
  EXPECT_EQ(m.plan->of("window").constant_value(), 0) << "left out";
  EXPECT_EQ(m.plan->of("tile_cost").constant_value(), 1);
  EXPECT_EQ(m.plan->of("min_units").constant_value(), 4);
  EXPECT_EQ(m.plan->of("tiles_together").constant_value(), 0);
  EXPECT_EQ(m.plan->of("heads_together").constant_value(), 0);
  EXPECT_EQ(m.plan->of("page_size").constant_value(), 0);
  EXPECT_EQ(m.plan->of("window_left").constant_value(), -1);
  EXPECT_FALSE(parse(kManifest).plan);
}

TEST(ManifestPlan, DeclaresTheValuesThatKilnRunAloneHas) {
  const Manifest m = parse(planned());
  ASSERT_EQ(m.run_values.size(), 4u);
  EXPECT_EQ(m.run_values[0].name, "requests");
  EXPECT_EQ(m.run_values[1].name, "qo_tokens");
  EXPECT_EQ(m.run_values[1].value.text(), "requests * 100");
  EXPECT_EQ(m.run_values[3].name, "equal_lengths");
  EXPECT_EQ(m.slot_index("kv_tokens"), m.slots.run_slot(2));
  EXPECT_EQ(m.runtime.size(), 0u) << "a caller passes none of them";
  std::string text = planned("qo_tokens = \"requests * 100\"\n", "");  // a decode: one token each
  for (auto at = text.find("qo_tokens"); at != text.npos; at = text.find("qo_tokens"))
    text.replace(at, 9, "requests");
  const Manifest decode = parse(text);
  EXPECT_EQ(decode.run_values.size(), 3u);
}

TEST(ManifestPlan, SlotsOfAllKindsStayApart) {
  const Manifest m = parse(
      planned("[plan]", "[export]\nBYTES = \"sizeof({T})\"\n[runtime]\nblocks = { value = 3 }\n[plan]"));
  std::vector<std::int64_t> slots(static_cast<std::size_t>(m.slots.total()));
  const auto set = [&](const char* name, std::int64_t value) {
    slots.at(static_cast<std::size_t>(m.slot_index(name))) = value;
  };
  set("H", 3), set("qo_tokens", 100), set("kv_tokens", 1000), set("BYTES", 7), set("blocks", 9);
  EXPECT_EQ(m.cost_read.evaluate(slots), 3300);
  EXPECT_EQ(m.slot_index("BYTES"), m.slots.export_slot(0));
}

TEST(ManifestPlan, LaunchesDoNotKnowTheValuesOfKilnRun) {
  for (const char* from : {"grid = [\"rows\"]", "expr = \"H % VEC == 0\"", "value = \"2 * dev.sms\""}) {
    const std::string key = std::string(from).substr(0, std::string(from).find(' '));
    const std::string to = key + (key == "grid" ? " = [\"requests\"]" : " = \"requests > 0\"");
    std::string text = changed("[launch]", kArguments + "[launch]") + kPlan;
    text.replace(text.find(from), std::string(from).size(), to);
    expect_error(Errc::manifest, {key, "requests", "it is a value of `kiln run`"}, [&] { parse(text); });
  }
}

TEST(ManifestPlan, UnknownKindsAndKeysSuggestTheNearest) {
  expect_refused(planned("\"attention\"", "\"attentoin\""), "attentoin",
                 {"[plan] kind", "'attentoin' is unknown; allowed: attention"});
  expect_refused(planned("tile_kv", "tile_kw"), "tile_kw",
                 {"[plan]", "unknown key 'tile_kw'", "did you mean 'tile_kv'?"});
  expect_refused(planned("kv_tokens =", "kv_token ="),
                 "kv_token =", {"[plan.run]", "unknown key 'kv_token'", "did you mean 'kv_tokens'?"});
}

TEST(ManifestPlan, WhatAKindNeedsMustBeThere) {
  expect_error(Errc::manifest, {"[plan] needs 'tile_kv'"}, [] { parse(planned("tile_kv = 64\n", "")); });
  expect_error(Errc::manifest, {"[plan] needs 'argument'"},
               [] { parse(planned("argument = \"plan\"\n", "")); });
  expect_error(Errc::manifest, {"[plan] needs 'kind'"}, [] { parse(planned("kind = \"attention\"\n", "")); });
  expect_error(Errc::manifest, {"[plan.run] needs 'kv_heads'"},
               [] { parse(planned("kv_heads = \"kv_heads\"\n", "")); });
  expect_error(Errc::manifest, {"[plan.run] needs 'requests'"}, [] { parse(planned("requests = 4\n", "")); });
}

TEST(ManifestPlan, TheKernelsConstantsAreKnownBeforeAnyCall) {
  for (const char* value : {"\"kv_heads\"", "\"workers\""})
    expect_refused(planned("tile_kv = 64", std::string("tile_kv = ") + value), "tile_kv",
                   {"[plan] tile_kv", "known before any call"});
  EXPECT_EQ(parse(planned("tile_kv = 64", "tile_kv = \"dev.sms + arch\"")).plan->of("tile_kv").text(),
            "dev.sms + arch");
}

TEST(ManifestPlan, ItsArgumentsAreWhatKilnCanMake) {
  expect_refused(planned("argument = \"plan\"", "argument = \"plam\""), "plam",
                 {"'plam' is no argument", "did you mean 'plan'?"});
  expect_refused(planned("argument = \"plan\"", "argument = \"q\""), "argument", {"'q' must be a ptr<i32>"});
  expect_refused(planned("argument = \"plan\"", "argument = \"workers\""), "argument",
                 {"'workers' must be a pointer"});
  expect_refused(planned("access = \"readwrite\"", "access = \"readwrite\"\nshape = [\"8\"]"),
                 "argument =", {"must have no shape"});
  expect_refused(planned("access = \"readwrite\"", "access = \"readwrite\"\nexists = \"H > 1\""),
                 "argument =", {"must not be optional"});
  expect_refused(planned("workers = \"workers\"", "workers = \"plan\""), "workers = \"plan\"",
                 {"'plan' must be an i32"});
  expect_refused(planned("value = \"2 * dev.sms\"", "value = \"kv_heads\""), "workers = \"workers\"",
                 {"needs a value made of parameters"});
  expect_refused(planned("\"2 * workers\", \"H + 1\"", "\"2 * kv_heads\""), "workspace",
                 {"the shape of 'partial'", "it never moves"});
  expect_refused(planned("shape = [\"2 * workers\", \"H + 1\"]\n", ""), "workspace",
                 {"'partial' needs a shape"});
  EXPECT_EQ(parse(planned("workspace = \"partial\"\n", "")).plan->workspace, -1);
}

TEST(ManifestPlan, AFillMayBeAnArrayOfTheLengths) {
  const Manifest m = parse(planned());
  const auto& fill = m.arguments[static_cast<std::size_t>(m.argument_index("lengths"))].fill;
  EXPECT_EQ(fill.kind, ArgumentSpec::Fill::Kind::plan);
  EXPECT_EQ(fill.lengths, "kv_indptr");
  expect_refused(planned("plan(kv_indptr)", "plan(indptr)"), "fill",
                 {"the lengths are qo_indptr kv_indptr kv_len last_page_len mask_indptr"});
  expect_refused(changed("shape = ", "fill = \"plan(kv_len)\"\nshape = "), "fill",
                 {"there is no [plan.run]"});
  std::string text = planned();
  text.replace(text.find("type = \"ptr<i32>\"\nshape = [\"requests"), 17, "type = \"ptr<f32>\"");
  expect_refused(text, "fill", {"needs elements of type i32, u32, i64 or u64"});
}

TEST(ManifestPlan, NamesOfItsValuesAreTakenOnce) {
  expect_error(Errc::manifest, {"are called 'requests'"},
               [] { parse(planned("name = \"kv_heads\"", "name = \"requests\"")); });
}

TEST(ManifestPlan, WithoutARunThereAreNoValues) {
  std::string text = planned();
  text.resize(text.find("[plan.run]"));
  text.replace(text.find("\"qo_tokens\", \"H\""), 16, "\"rows\", \"H\"");
  text.replace(text.find("shape = [\"requests + 1\"]\nfill = \"plan(kv_indptr)\""), 49, "shape = [\"1\"]");
  const Manifest m = parse(text);
  EXPECT_FALSE(m.plan->has_run);
  EXPECT_TRUE(m.run_values.empty());
}

TEST(ManifestPlan, OtherEntryPointsHaveNone) {
  const Manifest m =
      parse(planned("[plan]",
                    "[[kernel]]\nname = \"reduce\"\ninstantiate = "
                    "\"kiln::reduce<{T}>\"\n[kernel.launch]\ngrid = [1]\nblock = [1]\n[plan]"));
  ASSERT_EQ(m.entries.size(), 1u);
  EXPECT_FALSE(m.entries[0]->plan);
  EXPECT_TRUE(m.entries[0]->run_values.empty());
}

}  // namespace
}  // namespace kiln::source

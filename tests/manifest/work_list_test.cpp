// The rules of [work_list]; a row for each rule.
#include "tests/manifest/text.hpp"

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
fill = "work_list(kv_indptr)"
)toml";

const std::string kWorkList = R"toml([work_list]
kind = "attention"
argument = "plan"
workspace = "partial"
workers = "workers"
tile_rows = "CHUNKS"
tile_kv = 64
group = "H / 8"
causal = "ACT == ACT.silu"
[work_list.run]
requests = 4
qo_tokens = "requests * 100"
kv_tokens = "qo_tokens * 2"
kv_heads = "kv_heads"
[cost]
read = "(qo_tokens + kv_tokens) * H"
write = "qo_tokens * H"
)toml";

/// The small manifest with a work list. `from` is replaced in it.
std::string planned(const std::string& from = "", const std::string& to = "") {
  std::string out = changed("[launch]", kArguments + "[launch]") + kWorkList;
  if (from.empty()) return out;
  const auto at = out.find(from, out.find("name = \"q\""));
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? out : out.replace(at, from.size(), to);
}

TEST(ManifestWorkList, NamesItsArgumentsAndWhatTheKernelFixes) {
  const Manifest m = parse(planned());
  ASSERT_TRUE(m.work_list);
  EXPECT_EQ(m.work_list->kind, "attention");
  EXPECT_EQ(m.arguments[static_cast<std::size_t>(m.work_list->argument)].name, "plan");
  EXPECT_EQ(m.arguments[static_cast<std::size_t>(m.work_list->workspace)].name, "partial");
  EXPECT_EQ(m.arguments[static_cast<std::size_t>(m.work_list->workers)].name, "workers");
  EXPECT_EQ(m.work_list->of("tile_rows").text(), "CHUNKS");
  EXPECT_EQ(m.work_list->of("tile_kv").constant_value(), 64);
  EXPECT_EQ(m.work_list->of("window").constant_value(), 0) << "left out";
  EXPECT_EQ(m.work_list->of("tile_cost").constant_value(), 1);
  EXPECT_EQ(m.work_list->of("min_units").constant_value(), 4);
  EXPECT_EQ(m.work_list->of("tiles_together").constant_value(), 0);
  EXPECT_EQ(m.work_list->of("heads_together").constant_value(), 0);
  EXPECT_EQ(m.work_list->of("page_size").constant_value(), 0);
  EXPECT_EQ(m.work_list->of("window_left").constant_value(), -1);
  EXPECT_EQ(m.work_list->of("window_right").constant_value(), -1);
  EXPECT_FALSE(m.work_list->on_device);
  EXPECT_FALSE(parse(kManifest).work_list);
}

TEST(ManifestWorkList, IsWrittenByTheHostAloneUnlessOnSaysDevice) {
  EXPECT_TRUE(parse(planned("tile_kv = 64", "on = \"device\"\ntile_kv = 64")).work_list->on_device);
  EXPECT_FALSE(parse(planned("tile_kv = 64", "on = \"host\"\ntile_kv = 64")).work_list->on_device);
  expect_refused(planned("tile_kv = 64", "on = \"gpu\"\ntile_kv = 64"),
                 "on =", {"[work_list] on", "'gpu' is unknown; allowed: host device"});
  EXPECT_NO_THROW(parse("needs = [\"device_work_list\"]\n" + planned()));
}

TEST(ManifestWorkList, DeclaresTheValuesThatKilnRunAloneHas) {
  const Manifest m = parse(planned());
  ASSERT_EQ(m.run_values.size(), 4u);
  EXPECT_EQ(m.run_values[0].name, "requests");
  EXPECT_EQ(m.run_values[1].name, "qo_tokens");
  EXPECT_EQ(m.run_values[1].value.text(), "requests * 100");
  EXPECT_EQ(m.run_values[3].name, "equal_lengths");
  EXPECT_EQ(slot_index(m, "kv_tokens"), m.slots.run_slot(2));
  EXPECT_EQ(m.runtime.size(), 0u) << "a caller passes none of them";
  std::string text = planned("qo_tokens = \"requests * 100\"\n", "");  // a decode has one token each
  for (auto at = text.find("qo_tokens"); at != text.npos; at = text.find("qo_tokens"))
    text.replace(at, 9, "requests");
  const Manifest decode = parse(text);
  EXPECT_EQ(decode.run_values.size(), 3u);
}

TEST(ManifestWorkList, SlotsOfAllKindsStayApart) {
  const Manifest m = parse(planned(
      "[work_list]", "[export]\nBYTES = \"sizeof({T})\"\n[runtime]\nblocks = { value = 3 }\n[work_list]"));
  std::vector<std::int64_t> slots(static_cast<std::size_t>(m.slots.total()));
  const auto set = [&](const char* name, std::int64_t value) {
    slots.at(static_cast<std::size_t>(slot_index(m, name))) = value;
  };
  set("H", 3), set("qo_tokens", 100), set("kv_tokens", 1000), set("BYTES", 7), set("blocks", 9);
  EXPECT_EQ(m.cost_read.evaluate(slots), 3300);
  EXPECT_EQ(slot_index(m, "BYTES"), m.slots.export_slot(0));
}

TEST(ManifestWorkList, LaunchesDoNotKnowTheValuesOfKilnRun) {
  for (const char* from : {"grid = [\"rows\"]", "expr = \"H % VEC == 0\"", "value = \"2 * dev.sms\""}) {
    const std::string key = std::string(from).substr(0, std::string(from).find(' '));
    const std::string to = key + (key == "grid" ? " = [\"requests\"]" : " = \"requests > 0\"");
    std::string text = changed("[launch]", kArguments + "[launch]") + kWorkList;
    text.replace(text.find(from), std::string(from).size(), to);
    expect_error(Errc::manifest, {key, "requests", "it is a value of `kiln run`"}, [&] { parse(text); });
  }
}

TEST(ManifestWorkList, UnknownKindsAndKeysSuggestTheNearest) {
  expect_refused(planned("\"attention\"", "\"attentoin\""), "attentoin",
                 {"[work_list] kind", "'attentoin' is unknown; allowed: attention"});
  expect_refused(planned("tile_kv", "tile_kw"), "tile_kw",
                 {"[work_list]", "unknown key 'tile_kw'", "did you mean 'tile_kv'?"});
  expect_refused(planned("kv_tokens =", "kv_token ="),
                 "kv_token =", {"[work_list.run]", "unknown key 'kv_token'", "did you mean 'kv_tokens'?"});
}

TEST(ManifestWorkList, WhatAKindNeedsMustBeThere) {
  expect_error(Errc::manifest, {"[work_list] needs 'tile_kv'"}, [] { parse(planned("tile_kv = 64\n", "")); });
  expect_error(Errc::manifest, {"[work_list] needs 'argument'"},
               [] { parse(planned("argument = \"plan\"\n", "")); });
  expect_error(Errc::manifest, {"[work_list] needs 'kind'"},
               [] { parse(planned("kind = \"attention\"\n", "")); });
  expect_error(Errc::manifest, {"[work_list.run] needs 'kv_heads'"},
               [] { parse(planned("kv_heads = \"kv_heads\"\n", "")); });
  expect_error(Errc::manifest, {"[work_list.run] needs 'requests'"},
               [] { parse(planned("requests = 4\n", "")); });
}

TEST(ManifestWorkList, TheKernelsConstantsAreKnownBeforeAnyCall) {
  for (const char* value : {"\"kv_heads\"", "\"workers\""})
    expect_refused(planned("tile_kv = 64", std::string("tile_kv = ") + value), "tile_kv",
                   {"[work_list] tile_kv", "known before any call"});
  EXPECT_EQ(parse(planned("tile_kv = 64", "tile_kv = \"dev.sms + arch\"")).work_list->of("tile_kv").text(),
            "dev.sms + arch");
}

TEST(ManifestWorkList, ItsArgumentsAreWhatKilnCanMake) {
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
                 {"the shape of 'partial'", "its size is the same for every launch"});
  expect_refused(planned("shape = [\"2 * workers\", \"H + 1\"]\n", ""), "workspace",
                 {"'partial' needs a shape"});
  EXPECT_EQ(parse(planned("workspace = \"partial\"\n", "")).work_list->workspace, -1);
}

TEST(ManifestWorkList, AFillMayBeAnArrayOfTheLengths) {
  const Manifest m = parse(planned());
  const auto& fill = m.arguments[static_cast<std::size_t>(argument_index(m, "lengths"))].fill;
  EXPECT_EQ(fill.kind, ArgumentSpec::Fill::Kind::lengths);
  EXPECT_EQ(fill.lengths, "kv_indptr");
  expect_refused(planned("work_list(kv_indptr)", "work_list(indptr)"), "fill",
                 {"the lengths are qo_indptr kv_indptr kv_len last_page_len mask_indptr"});
  expect_refused(changed("shape = ", "fill = \"work_list(kv_len)\"\nshape = "), "fill",
                 {"it needs a table [work_list.run]"});
  std::string text = planned();
  text.replace(text.find("type = \"ptr<i32>\"\nshape = [\"requests"), 17, "type = \"ptr<f32>\"");
  expect_refused(text, "fill", {"needs elements of type i32, u32, i64 or u64"});
}

TEST(ManifestWorkList, NamesOfItsValuesAreTakenOnce) {
  expect_error(Errc::manifest, {"are called 'requests'"},
               [] { parse(planned("name = \"kv_heads\"", "name = \"requests\"")); });
}

TEST(ManifestWorkList, TheOldNameOfTheTableIsStillRead) {
  const auto old = [](std::string text) {
    for (std::size_t at; (at = text.find("work_list")) != std::string::npos;) text.replace(at, 9, "plan");
    return text;
  };
  const Manifest m = parse(old(planned()));
  EXPECT_EQ(m.work_list->of("tile_kv").constant_value(), 64);
  EXPECT_EQ(m.run_values.size(), 4u);
  EXPECT_EQ(m.arguments[static_cast<std::size_t>(argument_index(m, "lengths"))].fill.lengths, "kv_indptr");
  expect_refused(old(planned("tile_kv", "tile_kw")), "tile_kw", {"[plan]", "did you mean 'tile_kv'?"});
  expect_refused(old(planned("kv_tokens =", "kv_token =")), "kv_token =", {"[plan.run]", "'kv_tokens'"});
  expect_refused(planned() + "[plan]\nkind = \"attention\"\n", "[plan]",
                 {"plan: is the old name of [work_list]", "remove one of them"});
}

TEST(ManifestWorkList, AProgramWithoutPlannersReadsNone) {
  expect_error(Errc::manifest, {"[work_list] kind: 'attention' is unknown; allowed: none in this program"},
               [] { parse_manifest(planned(), "dir/rms_norm.toml"); });
}

TEST(ManifestWorkList, WithoutARunThereAreNoValues) {
  std::string text = planned();
  text.resize(text.find("[work_list.run]"));
  text.replace(text.find("\"qo_tokens\", \"H\""), 16, "\"rows\", \"H\"");
  text.replace(text.find("shape = [\"requests + 1\"]\nfill = \"work_list(kv_indptr)\""), 54,
               "shape = [\"1\"]");
  const Manifest m = parse(text);
  EXPECT_FALSE(m.work_list->has_run);
  EXPECT_TRUE(m.run_values.empty());
}

TEST(ManifestWorkList, OtherEntryPointsHaveNone) {
  const Manifest m =
      parse(planned("[work_list]",
                    "[[kernel]]\nname = \"reduce\"\ninstantiate = "
                    "\"kiln::reduce<{T}>\"\n[kernel.launch]\ngrid = [1]\nblock = [1]\n[work_list]"));
  ASSERT_EQ(m.entries.size(), 1u);
  EXPECT_FALSE(m.entries[0]->work_list);
  EXPECT_TRUE(m.entries[0]->run_values.empty());
}

}  // namespace
}  // namespace kiln::source

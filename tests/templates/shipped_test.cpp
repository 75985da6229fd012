// Compiles the shipped templates for every arch that kiln has a name for. run.py tests them on a GPU.
#include <algorithm>

#include "support/nightly.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

class ShippedTemplates : public KilnCompiler {};

const char* const kNames[] = {"act_and_mul",
                              "amax",
                              "append_paged_kv",
                              "attn_decode_paged",
                              "attn_merge",
                              "attn_prefill",
                              "attn_work_list",
                              "conv1d",
                              "delta_chunk_mma",
                              "delta_recurrent",
                              "dplr_chunk",
                              "fp8_quant",
                              "gemm",
                              "mla_append",
                              "moe_align",
                              "moe_combine",
                              "moe_gemm",
                              "moe_place",
                              "moe_route",
                              "rms_norm",
                              "rope",
                              "row_norm",
                              "rwkv7_kprep",
                              "rwkv7_out",
                              "rwkv7_shift_mix",
                              "softmax",
                              "topk_gate",
                              "wkv7_recurrent"};
const char* const kHopperNames[] = {"attn_sm90", "attn_sm90_e4m3", "delta_chunk",
                                    "mla_decode"};  // compile for sm_90a alone

/// Expects that a prewarm succeeded without a broken limit, and returns its compiled entries.
nlohmann::json expect_within_limits(const Finished& prewarm) {
  EXPECT_EQ(prewarm.status, 0) << prewarm.err.substr(0, 4000);
  auto entries = prewarm.json().value("entries", nlohmann::json::array());
  for (const auto& entry : entries) EXPECT_EQ(entry["limits_broken"].size(), 0u) << entry.dump();
  return entries;
}

/// Expects that each template was compiled for `archs` archs, within its limits.
void expect_all(const Finished& prewarm, std::size_t archs) {
  std::map<std::string, std::set<std::string>> compiled;
  for (const auto& entry : expect_within_limits(prewarm))
    compiled[entry["template"]].insert(entry["arch"].get<std::string>());
  for (const char* name : kNames)
    EXPECT_EQ(compiled[name].size(), archs) << name << " has no specialisation that ships warm";
}

/// A plan of every `step`-th specialisation that `plan` lists, and of the first of each template.
std::string some_of(const nlohmann::json& plan, std::size_t step) {
  std::string rows;
  std::set<std::string> seen;
  std::size_t number = 0;
  for (const auto& entry : plan["entries"]) {
    const bool first = seen.insert(entry["template"].get<std::string>()).second;
    if (!first && number++ % step != 0) continue;
    rows += "[[prewarm]]\ntemplate = " + entry["template"].dump() + '\n';
    for (const auto& [name, value] : entry["params"].items()) rows += name + " = " + value.dump() + '\n';
  }
  return rows;
}

// The default plan: the shipped templates, and the three specialisations of `scale` in --template-path. At night
// all of it is compiled, for three archs. That takes a minute of two cores for each arch, so CI compiles a fifth
// of it, for one arch.
TEST_F(ShippedTemplates, EverySpecialisationCompilesWithoutSpillsAndWarningsAndIsFoundAgain) {
  const auto listed = kiln({"prewarm", "--check", "--json", "--arch", "sm_90a"}).json();
  const auto& plan = listed["entries"];
  EXPECT_EQ(std::count_if(plan.begin(), plan.end(), [](const auto& e) { return e["template"] == "scale"; }),
            3);
  std::vector<std::string> words = {"prewarm", "--strict", "--keep-going", "--json", "--arch"};
  words.push_back(nightly() ? "sm_80,sm_90a,sm_120a" : "sm_90a");
  write("some.toml", some_of(listed, 8));
  if (!nightly()) words.push_back(path("some.toml"));
  const Finished cold = kiln(words);
  expect_all(cold, nightly() ? 3 : 1);
  const auto first = cold.json(), second = kiln(words).json();
  EXPECT_EQ(first["schema"], "kiln.prewarm/1");
  std::size_t for_hopper = 0;
  for (const char* name : kHopperNames) {
    const auto rows =
        std::count_if(plan.begin(), plan.end(), [&](const auto& e) { return e["template"] == name; });
    EXPECT_GT(rows, 0) << name;
    for_hopper += static_cast<std::size_t>(rows);
  }
  EXPECT_GE(first["total"].get<std::size_t>(),
            nightly() ? 3 * plan.size() - 2 * for_hopper : plan.size() / 8);
  EXPECT_EQ(first["compiled"], first["total"]);
  EXPECT_EQ(first["failed"], 0);
  EXPECT_EQ(second["from_disk"], first["total"]);
  EXPECT_EQ(second["compiled"], 0);
  EXPECT_EQ(second["cubin_bytes"], first["cubin_bytes"]);
  for (const auto& entry : second["entries"]) EXPECT_EQ(entry["outcome"], "disk");
}

// About two specialisations of each template, for the archs between.
const char* const kSome = R"(
[[prewarm]]
template = "rms_norm"
T = ["f32", "bf16"]
H = 4096
[[prewarm]]
template = "softmax"
T = ["f32", "bf16"]
H = 4096
[[prewarm]]
template = "amax"
T = ["f32", "bf16"]
H = 4096
[[prewarm]]
template = "act_and_mul"
T = "bf16"
D = 14336
OUT = ["bf16", "e4m3"]
[[prewarm]]
template = "fp8_quant"
T = "bf16"
H = 7168
GROUP = 128
[[prewarm]]
template = "gemm"
T = ["bf16", "e4m3"]
N = 4096
K = 4096
M_BUCKET = 64
[[prewarm]]
template = "rope"
T = "bf16"
D = 128
[[prewarm]]
template = "append_paged_kv"
T = "bf16"
D = 128
KV = ["bf16", "e4m3"]
[[prewarm]]
template = "topk_gate"
T = "f32"
E = 128
K = 8
[[prewarm]]
template = "moe_align"
E = 256
BLOCK = 64
[[prewarm]]
template = "moe_combine"
T = "bf16"
H = 4096
INVERSE = true
RESIDUAL = true
[[prewarm]]
template = "moe_place"
T = "bf16"
H = 4096
OUT = ["bf16", "e4m3"]
[[prewarm]]
template = "moe_route"
T = "f32"
E = 128
K = 8
BLOCK = 16
[[prewarm]]
template = "moe_gemm"
T = ["bf16", "e4m3"]
N = 768
K = 2048
E = 128
GATED = true
ACT = "silu"
[[prewarm]]
template = "rwkv7_shift_mix"
T = "bf16"
D = 2048
OUTPUTS = 6
[[prewarm]]
template = "rwkv7_kprep"
T = "bf16"
D = 64
[[prewarm]]
template = "rwkv7_out"
T = "bf16"
D = 64
[[prewarm]]
template = "wkv7_recurrent"
T = "bf16"
K = [64, 128]
FOR = ["any", "decode"]
[[prewarm]]
template = "delta_recurrent"
T = "bf16"
K = [64, 128]
FOR = ["any", "decode"]
[[prewarm]]
template = "attn_prefill"
T = "bf16"
D = [64, 128]
GROUP = 4
[[prewarm]]
template = "attn_decode_paged"
T = "bf16"
D = 128
GROUP = 4
KV = ["bf16", "e4m3"]
[[prewarm]]
template = "attn_merge"
T = "bf16"
D = 128
)";

TEST_F(ShippedTemplates, SomeOfEachCompileForTheArchsBetween) {
  KILN_NIGHTLY_ONLY();
  write("some.toml", kSome);
  expect_all(kiln({"prewarm", path("some.toml"), "--strict", "--keep-going", "--json", "--arch",
                   "sm_86,sm_89,sm_100a"}),
             3);
}

// Among the findings: a reference that does not take its kernel's arguments, and a target that a template claims
// and does not compile for.
TEST_F(ShippedTemplates, HaveNothingThatLintCallsAnErrorOrAWarning) {
  std::vector<std::string> words = {"lint", "--strict", "--json"};
  words.insert(words.end(), std::begin(kNames), std::end(kNames));
  words.insert(words.end(), std::begin(kHopperNames), std::end(kHopperNames));
  const Finished done = kiln(words);
  EXPECT_EQ(done.status, 0) << done.err << done.out.substr(0, 4000);
  EXPECT_EQ(done.json()["compiled"].get<std::size_t>(), words.size() - 3);
}

// Heads of 256 elements in e4m3 with more than 11 heads of q for each kv head leave no register free. Before
// sm_90 they spill up to 56 bytes (docs/guide/attention/compile.md).
TEST_F(ShippedTemplates, TheWidestDecodeDoesNotSpillFromSm90On) {
  KILN_NIGHTLY_ONLY();
  write("widest.toml", R"(
[[prewarm]]
template = "attn_decode_paged"
T = "bf16"
D = 256
GROUP = [15, 16]
KV = "e4m3"
[[prewarm]]
template = "attn_decode_paged"
T = "bf16"
D = 256
GROUP = 16
KV = "e4m3"
SOFT_CAP = true
ALIBI = true
)");
  const auto entries = expect_within_limits(
      kiln({"prewarm", path("widest.toml"), "--strict", "--json", "--arch", "sm_90a,sm_100a"}));
  EXPECT_EQ(entries.size(), 6u);
}

// A block holds a whole state, whose vectors of 16 bytes its threads share equally: also where their number is odd.
TEST_F(ShippedTemplates, OneTokenOfAStateOfAnySizeCompiles) {
  write("one.toml", R"(
[[prewarm]]
template = "delta_recurrent"
T = "bf16"
K = 128
V = [48, 80, 112, 144, 240]
STATE = "bf16"
V_FIRST = true
SLOTS = "sequence"
FOR = "one"
[[prewarm]]
template = "delta_recurrent"
T = "bf16"
K = 64
V = [48, 96]
STATE = ["f32", "bf16"]
V_FIRST = true
SLOTS = "sequence"
FOR = "one"
[[prewarm]]
template = "wkv7_recurrent"
T = "bf16"
K = 64
V = [96, 224]
STATE = "bf16"
V_FIRST = true
SLOTS = "sequence"
FOR = "one"
)");
  const auto entries =
      expect_within_limits(kiln({"prewarm", path("one.toml"), "--strict", "--json", "--arch", "sm_90a"}));
  EXPECT_EQ(entries.size(), 11u);
}

// With a gate for each key, blocks of 128 columns have as many warps as registers allow, and from sm_100 on 64 columns.
TEST_F(ShippedTemplates, WideBlocksOfTheDeltaRuleDoNotSpill) {
  write("wide.toml", R"(
[[prewarm]]
template = "delta_chunk_mma"
T = "bf16"
K = 128
COLUMNS = 128
GATE = "key"
STATE = ["f32", "bf16"]
V_FIRST = [false, true]
SLOTS = ["sequence", "token"]
)");
  const auto entries = expect_within_limits(
      kiln({"prewarm", path("wide.toml"), "--strict", "--json", "--arch", "sm_90a,sm_100a,sm_120a"}));
  EXPECT_EQ(entries.size(), 24u);
}

// Every kind of mask and head of the kernel for Hopper, with the default tiles. CI compiles a twentieth of them.
TEST_F(ShippedTemplates, EveryKindOfAttentionForHopperCompilesWithoutSpills) {
  write("hopper.toml", R"(
[[prewarm]]
template = "attn_sm90"
T = ["bf16", "f16"]
D = [64, 128, 192, 256]
GROUP = [1, 5]
CAUSAL = [false, true]
WINDOW = [false, true]
SOFT_CAP = [false, true]
PAGING = ["none", "table"]
[[prewarm]]
template = "attn_sm90"
T = "bf16"
D = 192
DV = 192
GROUP = 5
PAGING = ["none", "table"]
[[prewarm]]
template = "attn_sm90"
T = "bf16"
D = [64, 128, 192, 256]
GROUP = 5
CAUSAL = false
WINDOW = true
SOFT_CAP = true
PAGING = ["none", "table"]
SINK = true
[[prewarm]]
template = "attn_sm90"
T = "bf16"
D = [80, 96, 112]
GROUP = 5
WINDOW = [false, true]
PAGING = ["none", "table"]
[[prewarm]]
template = "attn_sm90_e4m3"
T = "bf16"
D = [64, 96, 128, 192, 256]
GROUP = 5
CAUSAL = [false, true]
WINDOW = [false, true]
SOFT_CAP = [false, true]
PAGING = ["none", "table"]
[[prewarm]]
template = "attn_sm90_e4m3"
T = "f16"
D = [192, 256]
DV = 192
GROUP = 1
WINDOW = true
SINK = true
[[prewarm]]
template = "mla_decode"
T = ["bf16", "f16"]
HEADS = [1, 24, 64, 128]
CAUSAL = [false, true]
[[prewarm]]
template = "mla_decode"
T = ["bf16", "f16"]
HEADS = [16, 128]
KV = "e4m3"
)");
  const auto listed = kiln({"prewarm", path("hopper.toml"), "--check", "--json", "--arch", "sm_90a"}).json();
  EXPECT_EQ(listed["total"], 380);
  if (!nightly()) write("hopper.toml", some_of(listed, 20));
  expect_within_limits(
      kiln({"prewarm", path("hopper.toml"), "--strict", "--keep-going", "--json", "--arch", "sm_90a"}));
}

// Specialisations that are not shipped: every feature, odd sizes, dtypes with integer conversions.
const char* const kFeatures = R"(
[[prewarm]]
template = "rms_norm"
T = ["f32", "bf16"]
H = [1, 97, 128, 5001, 28672, 65537]
FUSED_ADD = [false, true]
[[prewarm]]
template = "rms_norm"
T = ["f32", "f16"]
H = [128, 8192]
OUT = "e4m3"
GEMMA = true
FUSED_ADD = [false, true]
[[prewarm]]
template = "act_and_mul"
T = ["f32", "bf16"]
D = 97
ACT = ["silu", "gelu", "gelu_tanh", "swigluoai"]
ORDER = ["gate_first", "interleaved"]
[[prewarm]]
template = "act_and_mul"
T = ["f32", "f16"]
D = 1024
OUT = "e4m3"
GROUP = [0, 64, 128]
ROUND_GATE = [false, true]
[[prewarm]]
template = "softmax"
T = ["f32", "f16"]
H = [0, 1, 97, 16384, 32000, 32002, 50257, 129280]
LOG = [false, true]
[[prewarm]]
template = "softmax"
T = ["f32", "bf16"]
H = 32768
THREADS = 32
[[prewarm]]
template = "softmax"
T = ["f32", "bf16"]
H = 0
VEC = 1
[[prewarm]]
template = "fp8_quant"
T = ["f32", "bf16"]
H = 3072
GROUP = [64, 128]
POW2 = [false, true]
OUT = ["e4m3", "e5m2"]
[[prewarm]]
template = "fp8_quant"
T = ["f32", "f16"]
H = [1, 97, 7168, 65536, 65537]
SCALING = ["static", "tensor", "token"]
[[prewarm]]
template = "amax"
T = ["f32", "f16"]
H = [1, 5001, 7168]
[[prewarm]]
template = "rope"
T = ["f32", "bf16"]
D = [80, 128, 256]
INTERLEAVE = [false, true]
ANGLES = ["table", "llama31"]
[[prewarm]]
template = "rope"
T = "f16"
D = [96, 128, 288]
ROTARY = 64
ANGLES = "theta"
PAGING = ["slot_mapping", "page_table"]
KV = ["e4m3", "e5m2"]
[[prewarm]]
template = "append_paged_kv"
T = ["f32", "bf16"]
D = [80, 128]
KV = ["e4m3", "e5m2"]
PAGING = ["slot_mapping", "page_table"]
[[prewarm]]
template = "attn_merge"
T = ["f32", "f16"]
D = [80, 97, 192]
PAIR = [false, true]
[[prewarm]]
template = "attn_decode_paged"
T = ["f16", "bf16"]
D = [64, 256]
GROUP = [3, 16]
SOFT_CAP = true
ALIBI = [false, true]
[[prewarm]]
template = "attn_decode_paged"
T = "bf16"
D = [128, 192]
DV = 128
GROUP = [1, 12]
KV = ["bf16", "e4m3"]
[[prewarm]]
template = "rwkv7_shift_mix"
T = ["f32", "bf16"]
D = [129, 2048]
OUTPUTS = [1, 5, 6]
VARLEN = [false, true]
TOKENS = [1, 4]
[[prewarm]]
template = "rwkv7_kprep"
T = ["f32", "bf16"]
D = [60, 100, 255, 256]
WITH_B = true
[[prewarm]]
template = "rwkv7_out"
T = ["f32", "bf16"]
D = [60, 100, 255, 256]
NORM = true
[[prewarm]]
template = "wkv7_recurrent"
T = ["f32", "f16"]
K = [32, 60, 100, 256]
FORM = "kk_a"
VARLEN = [false, true]
[[prewarm]]
template = "wkv7_recurrent"
T = "bf16"
K = 64
V = [60, 128]
W = ["f32", "bf16"]
LANES = [4, 8]
COLS = [2, 4]
[[prewarm]]
template = "wkv7_recurrent"
T = ["f32", "bf16"]
K = [4, 52, 100, 256]
FOR = "decode"
[[prewarm]]
template = "conv1d"
T = ["f32", "bf16"]
D = [37, 8192]
W = [2, 3, 4]
TAPS_FIRST = [false, true]
TOKENS = [4, 16]
[[prewarm]]
template = "row_norm"
T = ["f32", "bf16"]
H = [64, 129, 8192, 65536]
NORM = ["rms", "layer"]
GATE = ["none", "silu_first"]
[[prewarm]]
template = "wkv7_recurrent"
T = ["f32", "bf16"]
K = [60, 64, 256]
FORM = "kk_a"
FOR = ["any", "decode"]
STATE = "f16"
V_FIRST = [false, true]
SLOTS = "sequence"
[[prewarm]]
template = "delta_recurrent"
T = ["f32", "bf16"]
K = [60, 128, 256]
GATE = ["none", "key"]
FOR = ["any", "decode", "prefill"]
STATE = "bf16"
V_FIRST = [false, true]
SLOTS = "sequence"
[[prewarm]]
template = "delta_recurrent"
T = ["f32", "bf16"]
K = [4, 60, 256]
V = 100
GATE = ["none", "key"]
FOR = ["decode", "prefill"]
[[prewarm]]
template = "delta_recurrent"
T = "f32"
K = [32, 60, 256]
GATE = ["none", "head", "key"]
L2NORM = true
[[prewarm]]
template = "delta_recurrent"
T = "bf16"
K = 128
V = 60
GATE = ["head", "key"]
GATE_INPUT = ["softplus", "bounded"]
BETA = ["head", "value"]
BETA_INPUT = "twice_sigmoid"
[[prewarm]]
template = "topk_gate"
T = ["f32", "bf16"]
E = [8, 60, 384, 512]
K = 8
SCORE = ["softmax", "sigmoid"]
BIAS = [false, true]
[[prewarm]]
template = "topk_gate"
T = "f32"
E = [160, 256]
K = [1, 8]
SCORE = "sigmoid"
BIAS = true
GROUPS = 8
TOPK_GROUPS = 4
RENORM = [false, true]
[[prewarm]]
template = "topk_gate"
T = ["f32", "bf16"]
E = [315, 495]
K = 8
SCORE = "sigmoid"
BIAS = true
GROUPS = 5
TOPK_GROUPS = [2, 5]
[[prewarm]]
template = "moe_align"
ID = ["i32", "i64"]
E = [1, 60, 512]
BLOCK = 64
LOCAL_ONLY = [false, true]
[[prewarm]]
template = "moe_align"
ID = ["i32", "i64"]
E = 256
BLOCK = 64
CLUSTERS = [2, 16]
[[prewarm]]
template = "moe_place"
T = ["f16", "bf16"]
H = [384, 7168]
OUT = "e4m3"
THREADS = [64, 512]
[[prewarm]]
template = "moe_combine"
T = ["f32", "bf16"]
H = [97, 2048]
OUT = ["f32", "bf16"]
WEIGHTS = [false, true]
INVERSE = [false, true]
SHARED = true
SHARED_GATE = [false, true]
RESIDUAL = [false, true]
[[prewarm]]
template = "moe_route"
T = ["f32", "bf16"]
E = [1, 60, 512]
K = 1
SCORE = ["softmax", "sigmoid"]
BIAS = [false, true]
BLOCK = 16
LOCAL_ONLY = [false, true]
[[prewarm]]
template = "moe_route"
T = "f32"
E = [160, 256]
K = 8
SCORE = "sigmoid"
BIAS = true
GROUPS = 8
TOPK_GROUPS = 4
BLOCK = 64
LANES = [16, 32]
[[prewarm]]
template = "moe_route"
T = "f32"
E = 128
K = 8
BLOCK = 16
X = ["f32", "f16", "bf16"]
H = [128, 2048]
[[prewarm]]
template = "moe_gemm"
T = ["bf16", "f16"]
N = 264
K = 200
E = 8
LAYOUT = ["routed", "contiguous", "masked"]
BLOCK = [8, 128]
GATED = [false, true]
[[prewarm]]
template = "moe_gemm"
T = "bf16"
N = 2880
K = 2880
E = 32
BLOCK = [16, 64]
GATED = true
ACT = "swigluoai"
ORDER = "up_first"
BIAS = true
WEIGHT = ["result", "product"]
[[prewarm]]
template = "moe_gemm"
T = "e4m3"
N = [512, 2048]
K = 7168
E = 32
OUT = ["bf16", "f32", "e4m3"]
GATED = [false, true]
ACT = "gelu"
BIAS = true
WEIGHT = "product"
[[prewarm]]
template = "attn_prefill"
T = "f16"
D = [64, 128, 192, 256]
GROUP = 5
WINDOW = [false, true]
SOFT_CAP = true
ALIBI = true
MASK = [false, true]
[[prewarm]]
template = "attn_prefill"
T = "bf16"
D = [64, 128, 192, 256]
GROUP = 16
CAUSAL = false
MASK = [false, true]
[[prewarm]]
template = "attn_prefill"
T = "bf16"
D = [64, 80, 96, 112, 128, 192, 256]
GROUP = 5
CAUSAL = false
PAGING = "table"
SINK = true
WINDOW = true
SOFT_CAP = true
ALIBI = true
MASK = [false, true]
)";

// The newest arch has the least shared memory. At night every feature is compiled, for the oldest arch, too.
// That takes two minutes for each arch, so CI compiles one feature of each template and some more.
TEST_F(ShippedTemplates, EveryFeatureCompilesForTheOldestAndTheNewestArchWithoutSpills) {
  write("features.toml", kFeatures);
  const auto listed =
      kiln({"prewarm", path("features.toml"), "--check", "--json", "--arch", "sm_120a"}).json();
  EXPECT_GT(listed["total"].get<int>(), 200);
  if (!nightly()) write("features.toml", some_of(listed, 30));
  const Finished r = kiln({"prewarm", path("features.toml"), "--strict", "--keep-going", "--json", "--arch",
                           nightly() ? "sm_80,sm_120a" : "sm_120a"});
  EXPECT_EQ(r.status, 0) << r.err.substr(0, 4000);
  const auto json = r.json();
  EXPECT_GT(json["compiled"].get<int>(), nightly() ? 400 : 200 / 30);
  EXPECT_EQ(json["failed"], 0);
}

}  // namespace
}  // namespace kiln::test

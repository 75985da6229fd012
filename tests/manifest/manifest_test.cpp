// The meaning of a manifest after it was read.
#include "manifest/manifest.hpp"

#include "tests/manifest/text.hpp"

namespace kiln::source {
namespace {

TEST(Manifest, ReadsEveryTable) {
  const Manifest m = parse(R"toml(
format = 1
[template]
name = "act"
source = "sub/../act.cu"
instantiate = "kiln::act<{T}, {GEMMA}, {ACT}, {N}, {D}>{{}}"
summary = "s"
formula = "f"
arch = { min = "sm_80" }
tolerance = { f32 = 1e-5, bf16 = 1 }
internal = true
[compile]
std = "c++20"
options = ["-fmad=true", "--use_fast_math"]
define = { B = "text here", A = "" }
preinclude = ["cuda_runtime_api.h"]
include_dirs = ["include", "../shared"]
extra_includes = ["impl.h"]
default_device = true
minimal = true
[param.T]
kind = "dtype"
values = ["bf16", "e4m3"]
doc = "element type"
spelling = "cuda"
[param.GEMMA]
kind = "bool"
default = false
[param.ACT]
kind = "enum"
values = ["silu", "gelu"]
default = "T == bf16 ? ACT.gelu : ACT.silu"
tune = ["gelu"]
[param.N]
kind = "int"
values = [4, -1]
default = 4
tune = [-1, 4]
[derive]
D = "N + GEMMA"
[[arg]]
name = "out"
type = "ptr<T>"
access = "write"
shape = ["rows", "N", 3]
align = "4 * sizeof(T)"
doc = "the result"
[[arg]]
name = "raw"
type = "ptr<void>"
[[arg]]
name = "w"
type = "ptr<f32>"
fill = "uniform(-1, 2.5)"
exists = "GEMMA"
optional = true
[[arg]]
name = "s"
type = "f64"
value = 2
optional = true
[[arg]]
name = "n"
type = "u32"
value = "rows + 1"
optional = true
[runtime]
rows = { value = 4096, doc = "how many" }
told = {}
[launch]
grid = ["rows", 2, "occupancy * dev.sms"]
block = [128]
smem = "dev.smem_optin / 2"
cluster = ["2"]
pdl = true
cooperative = true
[reference]
source = "act.reference.cu"
instantiate = "kiln::reference::act<{T}>"
grid = ["rows"]
block = ["256"]
[cost]
read = "rows * N * sizeof(T)"
write = "rows"
flops = 7
[limits]
max_spill_bytes = 0
compile_memory = 1073741824
[[prewarm]]
T = ["bf16", "e4m3"]
N = 4
GEMMA = [true, false]
)toml");
  EXPECT_EQ(m.name, "act");
  EXPECT_EQ(m.kernel.source, "act.cu");
  EXPECT_EQ(m.summary, "s");
  EXPECT_EQ(m.formula, "f");
  EXPECT_TRUE(m.internal);
  ASSERT_TRUE(m.arch_min);
  EXPECT_EQ(m.arch_min->number, 80);
  ASSERT_EQ(m.tolerance.size(), 2u);
  EXPECT_EQ(m.tolerance[1].second, 1.0);
  EXPECT_EQ(m.compile.std, "c++20");
  EXPECT_EQ(m.compile.options, (std::vector<std::string>{"-fmad=true", "--use_fast_math"}));
  EXPECT_EQ(m.compile.define,
            (std::vector<std::pair<std::string, std::string>>{{"B", "text here"}, {"A", ""}}));
  EXPECT_EQ(m.compile.include_dirs, (std::vector<std::string>{"include", "../shared"}));
  EXPECT_TRUE(m.compile.default_device && m.compile.minimal);

  EXPECT_EQ(parameter_names(m), (std::vector<std::string>{"T", "GEMMA", "ACT", "N"}));
  EXPECT_EQ(m.parameters[0].choices[0].cpp, "__nv_bfloat16");
  EXPECT_EQ(m.parameters[0].choices[1].cpp, "__nv_fp8_e4m3");
  EXPECT_EQ(m.parameters[0].doc, "element type");
  EXPECT_EQ(m.parameters[2].choices[1].cpp, "1");
  EXPECT_EQ(m.parameters[2].tune, std::vector<std::int64_t>{1});
  EXPECT_EQ(m.parameters[3].choices[1].cpp, "-1");
  EXPECT_EQ(m.parameters[3].tune, (std::vector<std::int64_t>{-1, 4}));

  ASSERT_EQ(m.arguments.size(), 5u);
  EXPECT_EQ(m.arguments[0].type.to_string(m.parameters), "ptr<T>");
  EXPECT_EQ(m.arguments[1].type.to_string(m.parameters), "ptr<void>");
  EXPECT_EQ(m.arguments[2].type.to_string(m.parameters), "ptr<f32>");
  EXPECT_EQ(m.arguments[0].access, Access::write);
  EXPECT_EQ(m.arguments[0].shape.size(), 3u);
  EXPECT_EQ(m.arguments[0].doc, "the result");
  EXPECT_EQ(m.arguments[2].fill.kind, ArgumentSpec::Fill::Kind::uniform);
  EXPECT_EQ(m.arguments[2].fill.a, -1);
  EXPECT_EQ(m.arguments[2].fill.b, 2.5);
  EXPECT_EQ(m.arguments[3].float_value, 2.0);
  EXPECT_EQ(argument_index(m, "n"), 4);
  EXPECT_EQ(argument_index(m, "zz"), -1);
  ASSERT_EQ(m.runtime.size(), 2u);
  EXPECT_EQ(m.runtime[0].doc, "how many");
  EXPECT_TRUE(m.runtime[1].value.empty());
  EXPECT_EQ(m.value_order,
            (std::vector<int>{m.slots.runtime_slot(0), m.slots.argument_slot(4)}));  // n reads rows

  EXPECT_EQ(m.kernel.launch.grid.size(), 3u);
  EXPECT_EQ(m.kernel.launch.block[0].evaluate({}), 128);
  EXPECT_TRUE(m.kernel.launch.pdl && m.kernel.launch.cooperative);
  ASSERT_TRUE(m.reference);
  EXPECT_EQ(m.reference->source, "act.reference.cu");
  EXPECT_EQ(m.cost_flops.evaluate({}), 7);
  EXPECT_EQ(m.limits.max_spill_bytes, 0);
  EXPECT_FALSE(m.limits.performance_warnings);
  EXPECT_EQ(m.limits.compile_memory, 1073741824);
  ASSERT_EQ(m.prewarm.size(), 1u);
  EXPECT_EQ(m.prewarm[0].values[2],
            (std::pair<std::string, std::vector<std::string>>{"GEMMA", {"true", "false"}}));
}

TEST(Manifest, KeepsTheOrderOfDeclaration) {
  const Manifest m = parse(R"toml(format = 1
[template]
name = "t"
source = "t.cu"
instantiate = "t<{B}, {A}>"
[param.B]
kind = "bool"
[param.A]
kind = "enum"
values = { zebra = "1", ant = "2" }
[launch]
grid = [1]
block = [1]
)toml");
  EXPECT_EQ(parameter_names(m), (std::vector<std::string>{"B", "A"}));
  EXPECT_EQ(m.parameters[1].choices[0].name, "zebra");
  EXPECT_EQ(m.parameters[1].choices[1].value, 1);
}

TEST(Manifest, OrdersDerivesAndDefaultsByNeed) {
  const Manifest m =
      parse(changed("CHUNKS = \"ceil_div(H, VEC)\"",
                    "LATE = \"EARLY + 1\"\nCHUNKS = \"ceil_div(H, VEC)\"\nEARLY = \"CHUNKS * 2\""));
  ASSERT_EQ(m.derives.size(), 3u);
  EXPECT_EQ(m.derives[0].first, "CHUNKS");
  EXPECT_EQ(m.derives[1].first, "EARLY");
  EXPECT_EQ(m.derives[2].first, "LATE");
  EXPECT_EQ(slot_index(m, "LATE"), m.slots.derive_slot(2));
  EXPECT_EQ(m.derives[2].second.reads(), std::vector<int>{m.slots.derive_slot(1)});
  EXPECT_EQ(m.kernel.launch.block[0].reads(), std::vector<int>{m.slots.derive_slot(0)});
  ASSERT_EQ(m.resolve_order.size(), 7u);
  const auto position = [&](const char* name) {
    return std::find(m.resolve_order.begin(), m.resolve_order.end(), slot_index(m, name));
  };
  EXPECT_LT(position("VEC"), position("CHUNKS"));
  EXPECT_LT(position("CHUNKS"), position("EARLY"));
}

TEST(Manifest, TellsRequirementsThatNeedALaunch) {
  const auto at_launch = [](const std::string& expression) {
    return parse(changed("\"H % VEC == 0\"", '"' + expression + '"')).requirements.at(0).at_launch;
  };
  for (const char* text : {"H % VEC == 0", "arch >= 90", "CHUNKS < 9", "T == bf16", "1", "stride(x, 1) == 1"})
    EXPECT_FALSE(at_launch(text)) << text;
  for (const char* text : {"rows > 0", "align(x) >= 16", "stride(x, 0) % VEC == 0", "dev.sms > 1", "x != 0",
                           "H < 0 || rows < 3"}) {
    EXPECT_TRUE(at_launch(text)) << text;
  }
}

TEST(Manifest, StrideOfAContiguousArgumentComesFromItsShape) {
  const Manifest m =
      parse(changed("stride = [\"stride_x\", \"1\"]\n", "") +
            "[[require]]\nexpr = \"stride(x, 0) == H && stride(x, 1) == 1\"\nmessage = \"m\"\n");
  std::vector<std::int64_t> slots(static_cast<std::size_t>(m.slots.total()));
  slots[static_cast<std::size_t>(slot_index(m, "H"))] = 48;
  EXPECT_EQ(m.requirements[1].expression.evaluate(slots), 1);
  EXPECT_TRUE(m.arguments[0].stride.empty());
}

TEST(Manifest, SlotsHaveTheOrderOfTheLayout) {
  const Manifest m = parse(with("[runtime]\nbatch = { value = 1 }\n"));
  const char* names[] = {"T",
                         "H",
                         "VEC",
                         "ACT",
                         "CHUNKS",
                         "x",
                         "rows",
                         "stride_x",
                         "eps",
                         "batch",
                         "arch",
                         "arch.smem_sm",
                         "arch.smem_block",
                         "arch.regs",
                         "dev.sms",
                         "dev.smem_optin",
                         "dev.l2",
                         "occupancy"};
  for (int i = 0; i < 18; ++i) EXPECT_EQ(slot_index(m, names[i]), i) << names[i];
  EXPECT_EQ(m.slots.total(), 18);
  EXPECT_EQ(slot_index(m, "nothing"), -1);
}

TEST(Manifest, ArgumentSizesAreThoseOfTheKernel) {
  using Kind = ArgumentType::Kind;
  const auto size = [](Kind kind) { return ArgumentType{kind, {}, -1, 24}.size(); };
  for (const Kind kind : {Kind::i32, Kind::u32, Kind::f32}) EXPECT_EQ(size(kind), 4u);
  for (const Kind kind : {Kind::pointer, Kind::i64, Kind::u64, Kind::f64}) EXPECT_EQ(size(kind), 8u);
  EXPECT_EQ(size(Kind::structure), 24u);
  EXPECT_EQ(size(Kind::tensormap), 128u);
}

TEST(Manifest, PlainKindsPrintAsWritten) {
  for (const char* type : {"i32", "i64", "u32", "u64", "f32", "f64", "struct<24>", "tensormap", "ptr<bf16>",
                           "ptr<ue8m0>", "ptr<void>", "ptr<T>"}) {
    const Manifest m = parse(with(std::string("[[arg]]\nname = \"more\"\ntype = \"") + type + "\"\n"));
    EXPECT_EQ(m.arguments.back().type.to_string(m.parameters), type);
  }
}

TEST(Manifest, EveryDtypeHasACudaSpelling) {
  const Manifest m =
      parse(changed("values = [\"f32\", \"f16\", \"bf16\"]",
                    "values = [\"f32\", \"f16\", \"bf16\", \"e4m3\", \"e5m2\", \"f64\", \"i8\", \"u8\", "
                    "\"i32\", \"u32\", \"i64\", \"u64\", \"ue8m0\"]\nspelling = \"cuda\""));
  const char* expected[] = {"float",         "__half",       "__nv_bfloat16", "__nv_fp8_e4m3",
                            "__nv_fp8_e5m2", "double",       "signed char",   "unsigned char",
                            "int",           "unsigned int", "long long",     "unsigned long long",
                            "__nv_fp8_e8m0"};
  static_assert(std::size(expected) == kDtypeCount);
  for (std::size_t i = 0; i < kDtypeCount; ++i) EXPECT_EQ(m.parameters[0].choices[i].cpp, expected[i]);
  EXPECT_EQ(parse(kManifest).parameters[0].choices[2].cpp, "kiln::bf16");
}

}  // namespace
}  // namespace kiln::source

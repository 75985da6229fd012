// Manifest features for kernels that were not written for kiln: types, several entry points, globals,
// exports, overrides for an arch, replaced headers.
#include "instantiate/instantiate.hpp"
#include "tests/manifest/memory_template.hpp"
#include "tests/manifest/text.hpp"

namespace kiln::source {
namespace {

Instantiation made(const std::string& text, std::vector<NamedValue> values, int arch = 90) {
  const auto origin = in_memory(text);
  return instantiate(origin, resolve(origin->manifest, positional(origin->manifest, values), {arch}));
}

const std::string kForeign = R"toml(format = 1
[template]
name = "gemm"
source = "gemm.cu"
instantiate = "lib::gemm<{CFG}, {EPI}>"
[compile]
define = { WIDTH = "{D}u", TEXT = "{{1}}" }
replace = { "exception.h" = "stub.h" }
preinclude = ["first.h"]
[param.T]
kind = "dtype"
values = ["f16", "bf16"]
spelling = { f16 = "__half", bf16 = "nv_bfloat16" }
include = ["cuda_fp16.h", "cuda_bf16.h"]
[param.D]
kind = "int"
range = [1, 512]
[param.EPI]
kind = "type"
values = { none = "lib::None", bias = { cpp = "lib::Bias<{T}>", include = "lib/bias.h" } }
default = "none"
[param.CFG]
kind = "enum"
values = { small = "lib::Config{{{D}, {STAGES}}}", big = "lib::Config{{2 * {D}, 4}}" }
default = "small"
[derive]
STAGES = "D / 64"
[[arg]]
name = "params"
type = "struct<PLACE>"
[[arg]]
name = "image"
type = "texture"
[[arg]]
name = "n"
type = "i32"
value = 4096
[launch]
grid = ["ceil_div(n, TILE)"]
block = ["128"]
smem = "STORAGE"
[[require]]
expr = "n % TILE == 0"
message = "n = {n} must be whole tiles of {TILE}"
[export]
TILE = "lib::Tile<{D}>::value"
STORAGE = "sizeof(lib::Storage<{D}>)"
[[global]]
name = "table"
symbol = "lib::table<{D}>"
[[kernel]]
name = "reduce"
instantiate = "lib::reduce<{EPI}>"
[[kernel.arg]]
name = "out"
type = "ptr<T>"
[[kernel.require]]
expr = "D >= 64"
message = "reduce needs D >= 64, not {D}"
[kernel.launch]
grid = ["dev.sms * occupancy"]
block = ["STORAGE / 64"]
cooperative = true
[arch.sm_90a]
instantiate = "lib::gemm_sm90<{CFG}, {EPI}>"
compile = { std = "c++20" }
default = { EPI = "bias" }
)toml";

std::string foreign(const std::string& from = "struct<PLACE>", const std::string& to = "struct") {
  std::string out = kForeign;
  if (from != "struct<PLACE>") out.replace(out.find("struct<PLACE>"), 13, "struct");
  const auto at = out.find(from);
  if (at == std::string::npos) throw std::logic_error(from);
  return out.replace(at, from.size(), to);
}

void expect_foreign_refused(const std::string& text, std::initializer_list<std::string> parts) {
  expect_error(Errc::manifest, parts, [&] { parse_manifest(text, "gemm.toml"); });
}

TEST(ForeignManifest, ValuesSpellOtherParametersAndBraces) {
  const Instantiation unit = made(foreign(), {{"T", "bf16"}, {"D", 128}, {"EPI", "bias"}}, 80);
  EXPECT_EQ(unit.name_expression, "lib::gemm<lib::Config{128, 2}, lib::Bias<nv_bfloat16>>");
  EXPECT_EQ(made(foreign(), {{"T", "f16"}, {"D", 64}, {"CFG", "big"}}, 80).name_expression,
            "lib::gemm<lib::Config{2 * 64, 4}, lib::None>");
}

TEST(ForeignManifest, DefinesHoldValuesAndAreInTheOptions) {
  const auto options = made(foreign(), {{"T", "f16"}, {"D", 64}}, 80).options;
  const auto has = [&](const std::string& option) {
    return std::find(options.begin(), options.end(), option) != options.end();
  };
  EXPECT_TRUE(has("-DWIDTH=64u"));
  EXPECT_TRUE(has("-DTEXT={1}"));
  EXPECT_TRUE(has("-DNDEBUG"));
  const auto loud = made(foreign("preinclude", "ndebug = false\npreinclude"), {{"T", "f16"}, {"D", 64}}, 80);
  EXPECT_EQ(std::count(loud.options.begin(), loud.options.end(), "-DNDEBUG"), 0);
}

TEST(ForeignManifest, HeadersOfTheChosenValuesComeFirst) {
  const auto headers = [](std::vector<NamedValue> values) {
    return made(foreign(), std::move(values), 80).compile.preinclude;
  };
  EXPECT_EQ(headers({{"T", "f16"}, {"D", 64}}),
            (std::vector<std::string>{"first.h", "cuda_fp16.h", "cuda_bf16.h"}));
  EXPECT_EQ(headers({{"T", "f16"}, {"D", 64}, {"EPI", "bias"}}),
            (std::vector<std::string>{"first.h", "cuda_fp16.h", "cuda_bf16.h", "lib/bias.h"}));
}

TEST(ForeignManifest, EntryPointsGlobalsAndExportsAreAskedFor) {
  const Instantiation unit = made(foreign(), {{"T", "f16"}, {"D", 64}}, 80);
  EXPECT_EQ(unit.name_expressions(), (std::vector<std::string>{"lib::gemm<lib::Config{64, 1}, lib::None>",
                                                               "lib::reduce<lib::None>", "&lib::table<64>"}));
  const std::string epilogue = unit.epilogue();
  EXPECT_NE(epilogue.find("#line 1 \"[export] TILE\""), std::string::npos);
  EXPECT_NE(epilogue.find("kiln_export_1 = kiln_exported<(sizeof(lib::Storage<64>))>::kiln_constant"),
            std::string::npos)
      << epilogue;
  EXPECT_EQ(instantiate(in_memory(foreign("[export]",
                                          "[reference]\nsource = \"r.cu\"\ninstantiate = \"r\"\ngrid = "
                                          "[1]\nblock = [1]\n[export]")),
                        unit.resolved, Which::reference)
                .name_expressions()
                .size(),
            1u)
      << "a reference is one kernel";
}

TEST(ForeignManifest, AnEntryPointHasItsOwnArgumentsAndRequirements) {
  const Manifest m = parse_manifest(foreign(), "gemm.toml");
  ASSERT_EQ(m.entries.size(), 1u);
  const Manifest& reduce = *m.entries[0];
  EXPECT_EQ(reduce.entry, "reduce");
  ASSERT_EQ(reduce.arguments.size(), 1u);
  EXPECT_EQ(reduce.arguments[0].type.to_string(reduce.parameters), "ptr<T>");
  EXPECT_TRUE(reduce.kernel.launch.cooperative);
  EXPECT_EQ(m.arguments[0].type.to_string(m.parameters), "struct");
  EXPECT_EQ(m.arguments[1].type.to_string(m.parameters), "texture");
  EXPECT_EQ(entry_named(m, "reduce"), &reduce);
  EXPECT_EQ(entry_named(m, "none"), nullptr);
  expect_error(Errc::requirement, {"reduce needs D >= 64, not 32"}, [] {
    made(foreign(), {{"T", "f16"}, {"D", 32}}, 80);
  });
}

TEST(ForeignManifest, WithoutTheShorthandTheFirstKernelIsTheMainOne) {
  const std::string text =
      "format = 1\n[template]\nname = \"two\"\nsource = \"two.cu\"\n"
      "[[kernel]]\nname = \"one\"\ninstantiate = \"one\"\n[kernel.launch]\ngrid = [1]\nblock = [32]\n"
      "[[kernel]]\nname = \"other\"\ninstantiate = \"other\"\n[kernel.launch]\ngrid = [2]\nblock = [64]\n";
  const Manifest m = parse_manifest(text, "two.toml");
  EXPECT_EQ(m.entry, "one");
  EXPECT_EQ(m.kernel.instantiate, "one");
  ASSERT_EQ(m.entries.size(), 1u);
  EXPECT_EQ(m.entries[0]->kernel.instantiate, "other");
  expect_foreign_refused(text + "[launch]\ngrid = [1]\nblock = [1]\n",
                         {"launch", "write it inside its [[kernel]]"});
  std::string twice = text;
  twice.replace(twice.find("\"other\"\n"), 7, "\"one\"");
  expect_foreign_refused(twice, {"two entry points are called 'one'"});
  for (const std::string over : {"instantiate = \"third\"", "launch = { grid = [7], block = [64] }"})
    expect_foreign_refused(text + "[arch.sm_90a]\n" + over + '\n',
                           {"[arch.sm_90a]", "reaches no [[kernel]]"});
  EXPECT_EQ(variant_for(parse_manifest(text + "[arch.sm_90a]\nsource = \"h.cu\"\n", "two.toml"), {90}).entry,
            "one");
}

TEST(ForeignManifest, WithoutTheShorthandWhatIsOutsideHoldsForTheFirstKernelBesideItsOwn) {
  const Manifest m = parse_manifest(
      "format = 1\n[template]\nname = \"two\"\nsource = \"two.cu\"\n"
      "[param.H]\nkind = \"int\"\nrange = [1, 100]\n"
      "[[require]]\nexpr = \"H % 8 == 0\"\nmessage = \"whole vectors\"\n[runtime]\nrows = { value = 4 }\n"
      "[[kernel]]\nname = \"one\"\ninstantiate = \"one\"\n"
      "[kernel.launch]\ngrid = [\"rows\", \"columns\"]\nblock = [32]\n"
      "[kernel.runtime]\ncolumns = { value = 2 }\n"
      "[[kernel.require]]\nexpr = \"H > 8\"\nmessage = \"two vectors\"\n"
      "[[kernel]]\nname = \"other\"\ninstantiate = \"other\"\n[kernel.launch]\ngrid = [2]\nblock = [64]\n",
      "two.toml");
  ASSERT_EQ(m.runtime.size(), 2u);
  EXPECT_EQ(m.runtime[1].name, "columns");
  EXPECT_TRUE(m.entries[0]->runtime.empty());
  const std::vector<Value> three{3}, eight{8}, sixteen{16};
  expect_error(Errc::requirement, {"whole vectors"}, [&] { resolve(m, three, {90}); });
  expect_error(Errc::requirement, {"two vectors"}, [&] { resolve(m, eight, {90}); });
  EXPECT_NO_THROW(resolve(m, sixteen, {90}));
}

TEST(ForeignManifest, AnArchOverridesSourceEntryCompileDefaultsAndLaunch) {
  const Instantiation plain = made(foreign(), {{"T", "f16"}, {"D", 64}}, 80),
                      hopper = made(foreign(), {{"T", "f16"}, {"D", 64}}, 90);
  EXPECT_EQ(plain.name_expression, "lib::gemm<lib::Config{64, 1}, lib::None>");
  EXPECT_EQ(hopper.name_expression, "lib::gemm_sm90<lib::Config{64, 1}, lib::Bias<__half>>");
  EXPECT_EQ(plain.options[0], "-std=c++17");
  EXPECT_EQ(hopper.options[0], "-std=c++20");
  EXPECT_EQ(hopper.compile.replace.size(), 1u) << "what is not overridden stays";
  const Manifest m = parse_manifest(
      foreign("compile = { std = \"c++20\" }", "launch = { block = [\"384\"] }\nsource = \"sm90.cu\""),
      "gemm.toml");
  EXPECT_EQ(variant_for(m, {90}).kernel.source, "sm90.cu");
  EXPECT_EQ(variant_for(m, {90}).kernel.launch.block[0].text(), "384");
  EXPECT_EQ(variant_for(m, {90}).kernel.launch.grid[0].text(), "ceil_div(n, TILE)");
  EXPECT_EQ(variant_for(m, {80}).kernel.source, "gemm.cu");
}

TEST(ForeignManifest, ATemplateOfOverridesAloneRunsOnTheirArchsOnly) {
  const std::string text =
      "format = 1\n[template]\nname = \"only\"\n[launch]\ngrid = [1]\nblock = [32]\n"
      "[arch.sm_90a]\nsource = \"h.cu\"\ninstantiate = \"h\"\n[arch.sm_100a]\nsource = \"b.cu\"\ninstantiate "
      "= \"b\"\n";
  const Manifest m = parse_manifest(text, "only.toml");
  EXPECT_TRUE(supports(m, {90}));
  EXPECT_TRUE(supports(m, {100}));
  EXPECT_FALSE(supports(m, {80}));
  EXPECT_EQ(variant_for(m, {100}).kernel.source, "b.cu");
  expect_error(Errc::unsupported_arch, {"'only' does not run on sm_80; it runs on: sm_90a sm_100a"},
               [&] { resolve(m, {}, {80}); });
}

TEST(ForeignManifest, ATemplateOfOverridesAloneRunsNowhereElseWhateverItsArchAllows) {
  const std::string rest =
      "[launch]\ngrid = [1]\nblock = [32]\n"
      "[arch.sm_90a]\nsource = \"h.cu\"\ninstantiate = \"h\"\n[arch.sm_100a]\nsource = \"b.cu\"\ninstantiate "
      "= \"b\"\n";
  const auto with = [&](const std::string& arch) {
    return "format = 1\n[template]\nname = \"only\"\narch = " + arch + '\n' + rest;
  };
  const Manifest m = parse_manifest(with("{ min = \"sm_80\" }"), "only.toml");
  expect_error(Errc::unsupported_arch, {"'only' does not run on sm_80; it runs on: sm_90a sm_100a"},
               [&] { resolve(m, {}, {80}); });
  EXPECT_FALSE(supports(m, {120})) << "the first override's source is not for it";
  EXPECT_TRUE(supports(m, {100}));
  expect_foreign_refused(with("{ only = [\"sm_80\", \"sm_90a\", \"sm_100a\"] }"),
                         {"arch allows sm_80, for which there is no source"});
  expect_foreign_refused(with("{ min = \"sm_100a\" }"), {"sm_90a is overridden", "never used"});
}

TEST(ForeignManifest, TextsThatDoubleFromValueToValueEnd) {
  std::string text =
      "format = 1\n[template]\nname = \"deep\"\nsource = \"d.cu\"\ninstantiate = \"k<{P0}>\"\n";
  for (int i = 0; i < 31; ++i) {
    const std::string next = "{P" + std::to_string(i + 1) + '}';
    text += "[param.P" + std::to_string(i) + "]\nkind = \"type\"\ndefault = \"a\"\nvalues = { a = \"" +
            (i == 30 ? "int" : "Pair<" + next + ", " + next + '>') + "\" }\n";
  }
  text += "[launch]\ngrid = [1]\nblock = [1]\n";
  expect_error(Errc::source, {"'deep'", "more than 65536 characters"}, [&] { made(text, {}); });
}

TEST(ForeignManifest, BadOverridesAreRefused) {
  expect_foreign_refused(foreign("[arch.sm_90a]", "[arch.hopper]"), {"gemm.toml:", "[arch] hopper"});
  expect_foreign_refused(foreign("default = { EPI = \"bias\" }", "default = { EPY = \"bias\" }"),
                         {"'EPY' is no parameter", "did you mean 'EPI'"});
  expect_foreign_refused(foreign("default = { EPI = \"bias\" }", "default = { EPI = \"swish\" }"),
                         {"'swish'"});
  expect_foreign_refused(foreign("default = { EPI = \"bias\" }", "block = 1"), {"unknown key 'block'"});
  expect_foreign_refused(
      foreign("source = \"gemm.cu\"", "source = \"gemm.cu\"\narch = { only = [\"sm_80\"] }"),
      {"sm_90a is overridden", "never used"});
}

TEST(ForeignManifest, ExportsArePartOfLaunchAndOfNothingThatIsKnownBefore) {
  expect_foreign_refused(foreign("default = \"none\"", "default = \"TILE > 2 ? none : bias\""), {"TILE"});
  expect_foreign_refused(foreign("STAGES = \"D / 64\"", "STAGES = \"TILE / 64\""),
                         {"'TILE' cannot be used here: it is known only when the kernel is launched"});
  expect_foreign_refused(foreign("[export]",
                                 "[reference]\nsource = \"r.cu\"\ninstantiate = \"r\"\ngrid = "
                                 "[\"TILE\"]\nblock = [1]\n[export]"),
                         {"'TILE' cannot be used here: it is a constant of the kernel's image"});
  expect_foreign_refused(foreign("TILE = \"lib", "n = \"lib"), {"and exports are called 'n'"});
  expect_foreign_refused(foreign("TILE = \"lib::Tile<{D}>::value\"", "TILE = \"lib::Tile<{Q}>::value\""),
                         {"[export] TILE: {Q} is no parameter or derive"});
}

TEST(ForeignManifest, BadSpellingsAreRefused) {
  expect_foreign_refused(foreign("\"lib::Bias<{T}>\"", "\"lib::Bias<{Q}>\""),
                         {"[param.EPI]", "{Q} is no parameter"});
  expect_foreign_refused(foreign("\"lib::Bias<{T}>\"", "\"lib::Bias<{EPI}>\""),
                         {"need each other: EPI -> EPI"});
  expect_foreign_refused(foreign("\"lib::Bias<{T}>\"", "\"lib::Bias{T\""),
                         {"literal brace is written twice"});
  expect_foreign_refused(foreign("\"{D}u\"", "\"{Q}u\""), {"[compile] define WIDTH", "{Q} is no parameter"});
  expect_foreign_refused(
      foreign("values = { none = \"lib::None\"", "values = [\"none\"]\nunused = { none = \"lib::None\""), {});
  expect_foreign_refused(foreign("{ f16 = \"__half\", bf16", "{ bf16"), {"spelling", "needs 'f16'"});
  expect_foreign_refused(foreign("{ f16 = \"__half\"", "{ f64 = \"double\", f16 = \"__half\""),
                         {"'f64' is not one of the values"});
  expect_foreign_refused(foreign("define = {", "define = { NDEBUG = \"1\","), {"ndebug = true"});
  expect_foreign_refused(foreign("\"stub.h\" }", "\"/stub.h\" }"), {"must be relative"});
  expect_foreign_refused(foreign("\"stub.h\" }", "\"exception.h\" }"), {"replaced by itself"});
  expect_foreign_refused(foreign("\"stub.h\" }", "\"stub.h\", \"stub.h\" = \"last.h\" }"),
                         {"replace exception.h", "'stub.h', which is replaced itself"});
  expect_foreign_refused(foreign("symbol = \"lib", "symbol = \"&lib"), {"without '&'"});
  expect_foreign_refused(foreign("preinclude", "host_headers = \"std\"\npreinclude"), {"allowed: none shim"});
}

}  // namespace
}  // namespace kiln::source

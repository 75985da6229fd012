// The rules of the manifest's grammar. Each rule has a row: a text that breaks it, the line
// and the words of the error.
#include "tests/manifest/text.hpp"

namespace kiln::source {
namespace {

TEST(ManifestRules, TomlItself) {
  expect_refused("format = 1\nname = \n", "name", {});
  expect_refused("format = 1\nformat = 2\n", "format = 2", {"format"});
  expect_refused(changed("[param.H]", "[param.T]"), "[param.T]\nkind = \"int\"", {});
  expect_error(Errc::manifest, {"dir/rms_norm.toml:1: "}, [] { parse("\xff\xfe"); });
  expect_error(Errc::manifest, {"dir/rms_norm.toml:1: needs 'format'"}, [] { parse(""); });
  expect_error(Errc::manifest, {"dir/rms_norm.toml:"}, [] { parse("a = " + std::string(100'000, '[')); });
}

TEST(ManifestRules, FormatIsOne) {
  expect_refused(changed("format = 1", "format = 2"), "format", {"format", "2 is unknown", "reads format 1"});
  expect_refused(changed("format = 1", "format = \"1\""), "format", {"expected an integer, found a string"});
  expect_refused(changed("format = 1\n", ""), "[template]", {"needs 'format'"});
}

TEST(ManifestRules, UnknownTablesAndKeysSuggestTheNearest) {
  expect_refused(with("[lunch]\n"), "[lunch]",
                 {"unknown table 'lunch'", "did you mean 'launch'?", "prewarm"});
  expect_refused(with("[[requires]]\nexpr = \"1\"\n"), "[[requires]]",
                 {"unknown table 'requires'", "did you mean 'require'?"});
  expect_refused(changed("format = 1", "format = 1\nname = \"x\""), "name = \"x\"", {"unknown key 'name'"});
  expect_refused(changed("source = \"rms", "surce = \"rms"), "surce",
                 {"[template]", "unknown key 'surce'", "did you mean 'source'?", "instantiate"});
  expect_refused(changed("range", "rang"),
                 "rang =", {"[param.H]", "unknown key 'rang'", "did you mean 'range'?"});
  expect_refused(changed("shape", "shapes"), "shapes",
                 {"[[arg]] 'x'", "unknown key 'shapes'", "did you mean 'shape'?"});
  expect_refused(changed("message", "massage"), "massage", {"[[require]]", "did you mean 'message'?"});
  expect_refused(with("grit = [1]\n"), "grit", {"[launch]", "did you mean 'grid'?"});
  expect_refused(with("[cost]\nbytes = 1\n"), "bytes", {"[cost]", "unknown key 'bytes'", "read write flops"});
  expect_refused(with("[limits]\nspills = 1\n"), "spills", {"[limits]", "unknown key 'spills'"});
  expect_refused(with("[runtime]\nb = { valu = 1 }\n"), "valu =", {"[runtime] b", "did you mean 'value'?"});
  expect_refused(with("[compile]\noption = []\n"), "option", {"[compile]", "did you mean 'options'?"});
  expect_refused(
      with("[reference]\nsource = \"r.cu\"\ninstantiate = \"r\"\ngrid = [1]\nblock = [1]\nsmem = 1\n"),
      "smem", {"[reference]", "unknown key 'smem'"});
}

TEST(ManifestRules, AFallbackIsTheNameOfAnotherTemplate) {
  const auto named = [](const std::string& toml) {
    return changed("name = \"rms_norm\"", "name = \"rms_norm\"\nfallback = " + toml);
  };
  EXPECT_EQ(parse_manifest(named("\"any_norm\""), "m.toml").fallback, "any_norm");
  EXPECT_EQ(parse_manifest(changed("name = \"rms_norm\"", "name = \"rms_norm\""), "m.toml").fallback, "");
  for (const std::string bad : {"\"rms_norm\"", "\"\"", "\"a b\"", "\"../x\""})
    expect_refused(named(bad), "fallback", {"fallback", "the name of another template"});
}

TEST(ManifestRules, WrongTypesAreNamed) {
  expect_refused(changed("name = \"rms_norm\"", "name = 3"), "name = 3",
                 {"[template] name", "expected a string, found an integer"});
  expect_refused(changed("name = \"rms_norm\"", "name = \"rms_norm\"\ninternal = 1"), "internal",
                 {"expected true or false, found an integer"});
  expect_refused(changed("grid = [\"rows\"]", "grid = \"rows\""), "grid",
                 {"[launch] grid", "expected an array of expressions, found a string"});
  expect_refused(changed("grid = [\"rows\"]", "grid = [1.5]"), "grid",
                 {"expected an integer or an expression in a string, found a fraction"});
  expect_refused(changed("grid = [\"rows\"]", "grid = [true]"), "grid", {"found true or false"});
  expect_refused(changed("[param.H]", "[param]\nQ = 3\n[param.H]"), "Q = 3",
                 {"[param.Q] must be a table, not an integer"});
  expect_refused(changed("[[require]]", "[require]"), "[require]", {"must be written [[require]]"});
  expect_refused(with("[limits]\nmax_spill_bytes = -1\n"), "max_spill", {"-1 must not be negative"});
  expect_refused(with("[limits]\nmax_spill_bytes = 1.5\n"), "max_spill",
                 {"expected an integer, found a fraction"});
  expect_refused(with("[cost]\nread = 1979-05-27\n"), "read =", {"found a date"});
}

TEST(ManifestRules, RequiredKeysAreNamed) {
  expect_refused(changed("name = \"rms_norm\"\n", ""), "[template]", {"[template] needs 'name'"});
  expect_refused(changed("instantiate = \"kiln::rms_norm<{T}, {H}, {VEC}>\"\n", ""), "[template]",
                 {"[template] needs 'instantiate'"});
  expect_refused(changed("kind = \"dtype\"\n", ""), "[param.T]", {"[param.T] needs 'kind'"});
  expect_refused(changed("type = \"ptr<T>\"\n", ""), "[[arg]]", {"[[arg]] 'x' needs 'type'"});
  expect_refused(changed("name = \"x\"\n", ""), "[[arg]]", {"[[arg]] needs 'name'"});
  expect_refused(changed("message = \"VEC must divide H = {H}\"\n", ""), "[[require]]",
                 {"[[require]] needs 'message'"});
  expect_refused(changed("expr = \"H % VEC == 0\"\n", ""), "[[require]]", {"[[require]] needs 'expr'"});
  expect_refused(changed("grid = [\"rows\"]\n", ""), "[launch]", {"[launch] needs 'grid'"});
  expect_refused(changed("block = [\"CHUNKS\"]\n", ""), "[launch]", {"[launch] needs 'block'"});
  expect_refused(changed("[launch]\ngrid = [\"rows\"]\nblock = [\"CHUNKS\"]\n", ""), "format",
                 {"needs 'launch'"});
  expect_refused(changed("[template]", "[compile]"), "format", {"needs 'template'"});
  expect_refused(with("[reference]\nsource = \"r.cu\"\n"), "[reference]", {"needs 'instantiate'"});
}

TEST(ManifestRules, Names) {
  expect_refused(changed("name = \"rms_norm\"", "name = \"rms-norm\""),
                 "name =", {"'rms-norm' must be [A-Za-z_]"});
  expect_refused(changed("[param.H]", "[param.\"H-1\"]"), "[param.\"H-1\"]",
                 {"a parameter 'H-1' must be named [A-Za-z_]"});
  for (const char* reserved :
       {"bf16", "arch", "dev", "occupancy", "min", "sizeof", "align", "true", "template", "tuned"}) {
    expect_refused(changed("[param.ACT]", std::string("[param.") + reserved + "]"),
                   std::string("[param.") + reserved,
                   {std::string("'") + reserved + "' is a dtype, a function"});
  }
  expect_refused(changed("CHUNKS = ", "f32 = "), "f32 =", {"[derive] f32", "cannot name a derive"});
  expect_refused(changed("name = \"eps\"", "name = \"gcd\""), "name = \"gcd\"", {"cannot name an argument"});
  expect_refused(with("[runtime]\nlog2 = { value = 1 }\n"), "log2", {"cannot name a run-time value"});
  expect_refused(
      changed("CHUNKS = ", "H = "), "H = \"ceil",
      {"two of the parameters, derives, arguments, tensor maps, run-time values and exports are called 'H'"});
  expect_refused(changed("name = \"eps\"", "name = \"rows\""), "name = \"rows\"\ntype = \"f32\"",
                 {"are called 'rows'"});
  expect_refused(with("[runtime]\nx = { value = 1 }\n"), "x = {", {"are called 'x'"});
}

TEST(ManifestRules, Paths) {
  for (const char* path : {"/etc/passwd", "../x.cu", "a/../../x.cu", "", ".", "sub/", "a\\nb"}) {
    expect_refused(changed("\"rms_norm.cu\"", '"' + std::string(path) + '"'), "source",
                   {"[template] source"});
  }
  expect_refused(with("[compile]\ninclude_dirs = [\"/usr/include\"]\n"), "include_dirs",
                 {"'/usr/include' must be relative"});
  EXPECT_EQ(parse(changed("\"rms_norm.cu\"", "\"./sub//x.cu\"")).kernel.source, "sub/x.cu");
}

TEST(ManifestRules, TheSourceIsCalledLikeTheTemplateUnlessItIsNamed) {
  const Manifest m = parse(changed("source = \"rms_norm.cu\"\n", "") +
                           "[reference]\ninstantiate = \"r<{T}>\"\ngrid = [\"1\"]\nblock = [\"1\"]\n");
  EXPECT_EQ(m.kernel.source, "rms_norm.cu");
  EXPECT_EQ(m.reference->source, "rms_norm.reference.cu");
  const Manifest variant =
      parse(changed("source = \"rms_norm.cu\"\n", "") + "[arch.sm_90a]\nsource = \"h.cu\"\n");
  EXPECT_EQ(variant.kernel.source, "h.cu");
  EXPECT_EQ(variant.arch_only, std::vector<base::Arch>{90}) << "there is no source for any other arch";
}

TEST(ManifestRules, Arch) {
  const auto arch = [](const std::string& text) {
    return changed("name = \"rms_norm\"", "name = \"rms_norm\"\narch = " + text);
  };
  expect_refused(arch("{ min = \"sm_80\", only = [\"sm_90a\"] }"),
                 "arch =", {"{ min = \"sm_80\" } or { only = "});
  expect_refused(arch("{}"), "arch =", {"{ min = \"sm_80\" } or"});
  expect_refused(arch("{ only = [] }"), "arch =", {"must not be empty"});
  expect_refused(arch("{ min = \"gfx90a\" }"), "arch =", {"unknown arch 'gfx90a'"});
  expect_refused(arch("{ max = \"sm_80\" }"), "arch =", {"unknown key 'max'"});
  expect_refused(arch("\"sm_80\""), "arch =", {"must be a table"});
  EXPECT_EQ(parse(arch("{ only = [\"90\", \"sm_100a\"] }")).arch_only.size(), 2u);
}

TEST(ManifestRules, Tolerance) {
  const auto tolerance = [](const std::string& text) {
    return changed("name = \"rms_norm\"", "name = \"rms_norm\"\ntolerance = " + text);
  };
  expect_refused(tolerance("{ bf17 = 1e-3 }"), "tolerance", {"is no dtype", "did you mean 'bf16'?"});
  expect_refused(tolerance("{ bf16 = -1 }"), "tolerance", {"not negative"});
  expect_refused(tolerance("{ bf16 = nan }"), "tolerance", {"not negative"});
  expect_refused(tolerance("{ bf16 = \"x\" }"), "tolerance", {"found a string"});
}

TEST(ManifestRules, ParameterValues) {
  expect_refused(changed("kind = \"int\"", "kind = \"integer\""), "kind = \"integer\"",
                 {"[param.H] kind", "'integer' is unknown", "allowed: dtype int bool enum"});
  expect_refused(changed("[\"f32\", \"f16\", \"bf16\"]", "[\"f32\", \"half\"]"), "values",
                 {"'half' is no dtype", "known: f32"});
  expect_refused(changed("[\"f32\", \"f16\", \"bf16\"]", "[\"f32\", \"f32\"]"), "values",
                 {"'f32' is there twice"});
  expect_refused(changed("[\"f32\", \"f16\", \"bf16\"]", "[]"), "values", {"must not be empty"});
  expect_refused(changed("values = [\"f32\", \"f16\", \"bf16\"]\n", ""), "[param.T]",
                 {"[param.T] needs 'values'"});
  expect_refused(changed("values = [\"f32\", \"f16\", \"bf16\"]", "values = [\"f32\"]\nspelling = \"torch\""),
                 "spelling", {"'torch' is unknown", "kiln cuda"});
  expect_refused(changed("range = [1, 65536]", "range = [1, 65536]\nspelling = \"cuda\""), "spelling",
                 {"only a dtype has a spelling"});
  expect_refused(changed("range = [1, 65536]\n", ""), "kind = \"int\"",
                 {"[param.H]", "needs either values = [...] or range"});
  expect_refused(changed("range = [1, 65536]", "range = [1, 65536]\nvalues = [1]"), "kind = \"int\"",
                 {"needs either"});
  expect_refused(changed("[1, 65536]", "[1]"), "range", {"expected [least, most]"});
  expect_refused(changed("[1, 65536]", "[5, 1]"), "range", {"the least value must come first"});
  expect_refused(changed("[1, 65536]", "[\"1\", 5]"), "range", {"expected integers, found a string"});
  expect_refused(changed("[1, 2, 4, 8]", "[1, 2, 2]"), "values = [1", {"'2' is there twice"});
  expect_refused(changed("[1, 2, 4, 8]", "[1, \"2\"]"), "values = [1", {"expected integers"});
  expect_refused(changed("[1, 2, 4, 8]", "\"1\""), "values = \"1\"", {"expected an array of integers"});
  expect_refused(changed("kind = \"dtype\"", "kind = \"dtype\"\nrange = [1, 2]"), "range = [1, 2]",
                 {"only an int has a range"});
  expect_refused(with("[param.B]\nkind = \"bool\"\nvalues = [true]\n"), "values = [true]",
                 {"a bool is true or false"});
  expect_refused(changed("gelu = \"kiln::Act::gelu\"", "gelu = \"a\\nb\""), "values = {",
                 {"must be one line of C++"});
  expect_refused(changed("gelu = \"kiln::Act::gelu\"", "gelu = \"\""), "values = {",
                 {"must be one line of C++"});
  expect_refused(changed("gelu = \"kiln::Act::gelu\"", "\"g-1\" = \"x\""), "values = {",
                 {"'g-1' must be named"});
  expect_refused(changed("{ silu = \"kiln::Act::silu\", gelu = \"kiln::Act::gelu\" }", "3"), "values = 3",
                 {"an array of names or a table"});
  expect_refused(changed("{ silu = \"kiln::Act::silu\", gelu = \"kiln::Act::gelu\" }", "[\"a\", \"a\"]"),
                 "values = [\"a\"", {"'a' is there twice"});
  expect_refused(changed("default = \"silu\"", "default = \"silu\"\ntune = [\"relu\"]"), "tune",
                 {"every candidate must be one of", "silu, gelu"});
  expect_refused(changed("range = [1, 65536]", "range = [1, 65536]\ntune = [0]"), "tune", {"1 to 65536"});
  expect_refused(changed("range = [1, 65536]", "range = [1, 65536]\ntune = 4"), "tune",
                 {"expected an array"});
}

TEST(ManifestRules, Defaults) {
  const auto vec = [](const std::string& text) { return changed("\"gcd(H, 16 / sizeof(T))\"", text); };
  expect_refused(vec("3"), "default = 3",
                 {"[param.VEC] default", "3 is not a value of VEC", "allowed: 1, 2, 4, 8"});
  expect_refused(vec("\"1 + 2\""), "default = \"1 + 2\"", {"'1 + 2' = 3 is not a value of VEC"});
  expect_refused(vec("\"1 / 0\""), "default = \"1 / 0\"", {"division by zero"});
  expect_refused(vec("true"), "default = true", {"found true or false"});
  expect_refused(vec("1.5"), "default = 1.5", {"found a fraction"});
  expect_refused(vec("\"rows\""), "default = \"rows\"",
                 {"'rows' cannot be used here: it is known only when the kernel is launched"});
  expect_refused(vec("\"dev.sms\""), "default = \"dev.sms\"", {"'dev.sms' cannot be used here"});
  expect_refused(vec("\"align(x)\""), "default = \"align(x)\"", {"'x' cannot be used here"});
  expect_refused(vec("\"eps\""), "default = \"eps\"", {"'eps' cannot be used here"});
  expect_refused(vec("\"VEX\""), "default = \"VEX\"", {"unknown name 'VEX'", "column 1"});
  expect_refused(changed("default = \"silu\"", "default = \"relu\""), "default = \"relu\"",
                 {"unknown name 'relu'"});
  expect_refused(changed("default = \"silu\"", "default = \"2\""), "default = \"2\"",
                 {"is not a value of ACT; allowed: silu, gelu"});
  expect_refused(changed("values = [\"f32\", \"f16\", \"bf16\"]", "values = [\"f32\"]\ndefault = \"f64\""),
                 "default = \"f64\"", {"is not a value of T"});
  EXPECT_EQ(parse(vec("\"arch >= 90 ? 8 : 4\"")).parameters[2].default_value.reads().size(), 1u);
  EXPECT_EQ(parse(with("[param.B]\nkind = \"bool\"\ndefault = \"T == bf16\"\n")).parameters[4].name, "B");
}

TEST(ManifestRules, CyclesArePrinted) {
  expect_refused(changed("\"gcd(H, 16 / sizeof(T))\"", "\"CHUNKS\""), "[param.VEC]",
                 {"defaults and derives need each other: VEC -> CHUNKS -> VEC"});
  expect_refused(changed("\"gcd(H, 16 / sizeof(T))\"", "\"VEC\""), "[param.VEC]", {"VEC -> VEC"});
  expect_refused(
      changed("CHUNKS = \"ceil_div(H, VEC)\"", "A = \"B\"\nB = \"C + H\"\nC = \"A\"\nCHUNKS = \"1\""),
      "A = \"B\"", {"A -> B -> C -> A"});
}

TEST(ManifestRules, Counts) {
  std::string parameters, arguments, runtime, derives;
  for (int i = 0; i < 29; ++i) parameters += "[param.P" + std::to_string(i) + "]\nkind = \"bool\"\n";
  for (int i = 0; i < 61; ++i)
    arguments += "[[arg]]\nname = \"a" + std::to_string(i) + "\"\ntype = \"i32\"\n";
  expect_refused(with(parameters), "[param.T]", {"33 entries; at most 32"});
  expect_refused(with(arguments), "[[arg]]", {"65 entries; at most 64"});
}

}  // namespace
}  // namespace kiln::source

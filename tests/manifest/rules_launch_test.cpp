// The manifest's rules about arguments, launch, requirements, name expressions and prewarm
// rows; a row for each rule.
#include "tests/manifest/text.hpp"

namespace kiln::source {
namespace {

TEST(ManifestRules, Arguments) {
  const auto type = [](const std::string& text) {
    return changed("type = \"ptr<T>\"", "type = \"" + text + '"');
  };
  expect_refused(type("ptr<Q>"), "ptr<Q>",
                 {"[[arg]] 'x' type", "'Q' is no dtype and no dtype parameter", "known: void T f32"});
  expect_refused(type("ptr<H>"), "ptr<H>", {"'H' is no dtype and no dtype parameter"});
  expect_refused(type("float*"), "float*", {"'float*' is unknown; allowed: ptr<P>"});
  expect_refused(type("ptr<T"), "ptr<T\"", {"is unknown; allowed"});
  for (const char* text :
       {"struct<0>", "struct<>", "struct<-1>", "struct<99999>", "struct<1x>", "struct<999999999999999999>"}) {
    expect_refused(type(text), text, {"must be struct<BYTES> with 1 to 32764 bytes"});
  }
  expect_refused(changed("shape = [\"rows\", \"H\"]", "access = \"rw\"\nshape = [\"rows\", \"H\"]"), "access",
                 {"'rw' is unknown; allowed: read write readwrite"});
  for (const char* key : {"access = \"read\"", "shape = [1]", "stride = [1]", "align = 4", "exists = 1",
                          "fill = \"const(1)\""}) {
    expect_refused(changed("type = \"i32\"", "type = \"i32\"\n" + std::string(key)), key,
                   {"[[arg]] 'rows'", "only pointers have it"});
  }
  expect_refused(changed("[\"stride_x\", \"1\"]", "[\"1\"]"), "stride = [",
                 {"has 1 dimensions, and shape has 2"});
  expect_refused(changed("[\"rows\", \"H\"]", "[]"), "shape", {"has 0 expressions; expected 1 to 8"});
  expect_refused(changed("[\"rows\", \"H\"]", "[\"eps\", \"H\"]"), "shape",
                 {"'eps' cannot be used here: expressions know integers and pointers (and [[require]] "
                  "floating-point numbers), and it is f32"});
  EXPECT_TRUE(
      parse(with("[[require]]\nexpr = \"eps > 0\"\nmessage = \"{eps}\"\n")).requirements.back().at_launch);
  expect_refused(changed("[\"rows\", \"H\"]", "[\"occupancy\", \"H\"]"), "shape",
                 {"'occupancy' cannot be used here: it is known only in [launch]"});
  expect_refused(changed("type = \"ptr<T>\"", "type = \"ptr<T>\"\nvalue = 3"), "value = 3",
                 {"only numbers have a value"});
  expect_refused(changed("value = 1e-5", "value = \"1e-5\""), "value = \"1e-5\"",
                 {"expected a number, found a string"});
  expect_refused(changed("value = 4096", "value = 4096.5"), "value = 4096.5",
                 {"expected an integer or an expression"});
}

TEST(ManifestRules, OptionalArgumentsTrail) {
  const auto optional = [](const std::string& name, std::string text = kManifest) {
    const std::string key = "name = \"" + name + "\"\n";
    return text.replace(text.find(key), key.size(), key + "optional = true\n");
  };
  expect_refused(optional("rows"), "[[arg]]\nname = \"stride_x\"",
                 {"[[arg]] 'stride_x'", "every argument after an optional one", "'rows' is"});
  EXPECT_TRUE(parse(optional("eps", optional("stride_x"))).arguments[3].optional);
  std::string none = optional("eps");
  expect_refused(none.replace(none.find("value = 1e-5\n"), 13, ""), "optional",
                 {"an optional number needs a value"});
  EXPECT_TRUE(
      parse(with("[[arg]]\nname = \"res\"\ntype = \"ptr<T>\"\noptional = true\n")).arguments[4].optional);
}

TEST(ManifestRules, Fills) {
  const auto fill = [](const std::string& text) {
    return changed("shape = ", "fill = \"" + text + "\"\nshape = ");
  };
  for (const char* text :
       {"normal",          "normal(0, 1",    "normal 0 1)",    "gauss(0, 1)",        "normal(0)",
        "normal(0, 1, 2)", "const()",        "const(1, 2)",    "normal(a, b)",       "uniform(2, 1)",
        "int(0.5, 2)",     "int(0, 1e300)",  "normal(0, -1)",  "const(nan)",         "const(inf)",
        "const(1x)",       "permutation()",  "permutation(3)", "indptr()",           "indptr(1, 2)",
        "indptr(-1)",      "indptr(nobody)", "int(0)",         "int(0, nobody - 1)", "int(3, 2)"}) {
    expect_refused(fill(text), "fill",
                   {"[[arg]] 'x' fill", "'" + std::string(text) + "'",
                    "normal(mean, sd) uniform(lo, hi) int(lo, hi) permutation indptr(total) const(v)"});
  }
  EXPECT_EQ(parse(fill("int(-3, 5)")).arguments[0].fill.low.constant_value(), -3);
  EXPECT_EQ(parse(fill("const( 1e-3 )")).arguments[0].fill.a, 1e-3);
}

TEST(ManifestRules, FillsOfIndices) {
  using Kind = ArgumentSpec::Fill::Kind;
  const auto typed = [](const std::string& dtype, const std::string& text) {
    std::string out = changed("shape = ", "fill = \"" + text + "\"\nshape = ");
    const auto at = out.find("type = \"ptr<T>\"");
    return out.replace(at, 15, "type = \"ptr<" + dtype + ">\"");
  };
  EXPECT_EQ(parse(typed("i32", "permutation")).arguments[0].fill.kind, Kind::permutation);
  EXPECT_EQ(parse(typed("u64", "indptr(rows * 2)")).arguments[0].fill.high.text(), "rows * 2");
  EXPECT_EQ(parse(typed("i64", "int(0, min(H, rows) - 1)")).arguments[0].fill.high.text(),
            "min(H, rows) - 1");
  EXPECT_EQ(parse(typed("T", "permutation")).arguments[0].fill.kind, Kind::permutation) << "T is known later";
  for (const char* text : {"permutation", "indptr(4)"})
    expect_refused(typed("f32", text), "fill",
                   {"'" + std::string(text) + "'", "i32, u32, i64 or u64", "f32"});
}

TEST(ManifestRules, AFillMayBeAKernelOfTheSource) {
  const auto fill = [](const std::string& text) {
    return changed("shape = ", "fill = \"" + text + "\"\nshape = ");
  };
  const auto read = parse(fill("ns::pages<{T}, {H}>")).arguments[0].fill;
  EXPECT_EQ(read.kind, ArgumentSpec::Fill::Kind::kernel);
  EXPECT_EQ(read.instantiate, "ns::pages<{T}, {H}>");
  expect_refused(fill("ns::pages<{NOBODY}>"), "fill", {"NOBODY"});
}

TEST(ManifestRules, ValuesThatNeedEachOther) {
  std::string text = changed("value = 4096", "value = \"stride_x\"");
  const std::string from = "value = \"H\"";
  text.replace(text.find(from), from.size(), "value = \"rows + 1\"");
  expect_refused(text, "[[arg]]", {"values need each other: rows -> stride_x -> rows"});
}

TEST(ManifestRules, Launch) {
  expect_refused(changed("grid = [\"rows\"]", "grid = [1, 2, 3, 4]"), "grid",
                 {"has 4 expressions; expected 1 to 3"});
  expect_refused(changed("grid = [\"rows\"]", "grid = []"), "grid", {"has 0 expressions"});
  expect_refused(with("cluster = [1, 1, 1, 1]\n"), "cluster", {"expected 1 to 3"});
  expect_refused(with("smem = 1.5\n"), "smem", {"expected an integer or an expression"});
  expect_refused(with("pdl = 1\n"), "pdl", {"expected true or false"});
  expect_refused(with("smem = \"ROWS\"\n"), "smem", {"unknown name 'ROWS'", "did you mean 'rows'?"});
  EXPECT_EQ(parse(with("smem = \"occupancy * 2\"\n")).kernel.launch.smem.reads().size(), 1u);
}

TEST(ManifestRules, NameExpressions) {
  const auto instantiate = [](const std::string& text) {
    return changed("kiln::rms_norm<{T}, {H}, {VEC}>", text);
  };
  expect_refused(instantiate("f<{TT}>"), "instantiate",
                 {"[template] instantiate", "{TT} is no parameter or derive", "did you mean 'T'?",
                  "known: T H VEC ACT CHUNKS"});
  expect_refused(instantiate("f<{rows}>"), "instantiate", {"{rows} is no parameter or derive"});
  expect_refused(instantiate("f<{T>"), "instantiate", {"has a '{' without '}'"});
  expect_refused(instantiate("f<T}>"), "instantiate", {"has a '}' without '{'"});
  expect_refused(instantiate("f<{}>"), "instantiate", {"{} is no parameter"});
  expect_refused(instantiate("f\\ng"), "instantiate", {"must be one line"});
  expect_refused(instantiate(""), "instantiate", {"must not be empty"});
  EXPECT_EQ(parse(instantiate("f<{CHUNKS}>{{}}")).kernel.instantiate, "f<{CHUNKS}>{{}}");
}

TEST(ManifestRules, Messages) {
  const auto message = [](const std::string& text) { return changed("VEC must divide H = {H}", text); };
  expect_refused(message("{Q}"), "message", {"[[require]] message", "{Q} is unknown", "known:"});
  expect_refused(message("{"), "message", {"without '}'"});
  expect_refused(message("{rows}"), "message",
                 {"{rows} has no value here: it is known only when the kernel is launched"});
  EXPECT_EQ(parse(with("[[require]]\nexpr = \"rows > 0\"\nmessage = \"{rows} {dev.sms} {x} {{}}\"\n"))
                .requirements.size(),
            2u);
  EXPECT_EQ(parse(with("[[require]]\nexpr = \"rows > 0\"\nmessage = \"{eps}\"\n")).requirements.size(), 2u);
  expect_refused(with("[[require]]\nexpr = \"occupancy > 0\"\nmessage = \"m\"\n"), "occupancy",
                 {"'occupancy' cannot be used here"});
}

TEST(ManifestRules, Prewarm) {
  const auto row = [](const std::string& text) { return with("[[prewarm]]\n" + text + '\n'); };
  expect_refused(
      row("T = \"bf16\"\nH = 4096\nHH = 1"), "HH = 1",
      {"[[prewarm]] HH", "is no parameter of rms_norm", "did you mean 'H'?", "known: T H VEC ACT"});
  expect_refused(row("T = \"f64\"\nH = 4096"), "T = \"f64\"",
                 {"[[prewarm]] T", "'f64' is not allowed; allowed: f32, f16, bf16"});
  expect_refused(row("T = \"bf16\"\nH = [1, 0]"), "H = [1, 0]", {"'0' is not allowed; allowed: 1 to 65536"});
  expect_refused(row("T = \"bf16\"\nH = []"), "H = []", {"an empty list"});
  expect_refused(row("T = \"bf16\"\nH = 1.5"), "H = 1.5",
                 {"a string, an integer, true, false, { from, to, step | times }, or a list of these"});
  expect_refused(row("T = \"bf16\"\nH = [[1]]"), "H = [[1]]", {"found an array"});
  expect_refused(row("T = \"bf16\""), "[[prewarm]]", {"[[prewarm]] H", "has no default and must be given"});
  expect_refused(row("T = \"bf16\"\nH = 1\ntemplate = \"x\""), "template = \"x\"", {"is no parameter"});
  EXPECT_EQ(parse(row("T = \"bf16\"\nH = \"0064\"")).prewarm[0].values[1].second[0], "64");
}

}  // namespace
}  // namespace kiln::source

// [bind]: what follows by name, and mistakes with their messages.
#include <gtest/gtest.h>

#include "manifest/bind/describe.hpp"
#include "manifest/manifest.hpp"
#include "support/expect_error.hpp"

namespace kiln::source {
namespace {

/// A manifest with a strided matrix and a vector, and the lines of a [bind].
std::string manifest_with(const std::string& bind) {
  return R"(format = 1
[template]
name = "scale"
source = "scale.cu"
instantiate = "scale<{T}, {H}, {MODE}>"
[param.T]
kind = "dtype"
values = ["f32", "bf16"]
[param.H]
kind = "int"
range = [1, 4096]
[param.MODE]
kind = "enum"
values = { up = "0", down = "1" }
default = "up"
[[arg]]
name = "out"
type = "ptr<T>"
access = "write"
shape = ["rows", "H"]
stride = ["stride_out", "1"]
[[arg]]
name = "x"
type = "ptr<T>"
shape = ["rows", "H"]
stride = ["stride_x", "1"]
[[arg]]
name = "w"
type = "ptr<f32>"
shape = ["H"]
[[arg]]
name = "rows"
type = "i32"
[[arg]]
name = "stride_x"
type = "i64"
[[arg]]
name = "stride_out"
type = "i64"
[[arg]]
name = "eps"
type = "f32"
optional = true
value = 1.0
[launch]
grid = ["rows"]
block = ["32"]
[[bind]]
)" + bind;
}

Manifest parsed(const std::string& bind) { return parse_manifest(manifest_with(bind), "scale.toml"); }

TEST(Bind, ParametersAndArgumentsFollowByName) {
  const Manifest m = parsed(
      "call = \"x: T[..., H], w: f32[H], mode: MODE = down, eps: float = 2\"\nout = \"out: T[..., H]\"\n");
  ASSERT_EQ(m.binds.size(), 1u);
  const BindSpec& bind = m.binds[0];
  EXPECT_EQ(bind.name, "scale");
  ASSERT_EQ(bind.parameters.size(), 3u);
  EXPECT_EQ(bind.operands.size(), 5u);
  EXPECT_EQ(bind.inputs, 4u);
  const auto measure_of = [&](int argument) {
    const auto& reads = bind.arguments[static_cast<std::size_t>(argument)].value.reads();
    return reads.size() == 1 ? bind.measures[static_cast<std::size_t>(reads[0] - bind.first_slot)]
                             : BindMeasure{};
  };
  EXPECT_EQ(measure_of(3), (BindMeasure{BindMeasure::Kind::leading_extent, 0, 1}));
  EXPECT_EQ(measure_of(4), (BindMeasure{BindMeasure::Kind::leading_stride, 0, 1}));
  EXPECT_EQ(measure_of(5), (BindMeasure{BindMeasure::Kind::leading_stride, 4, 1}));
  EXPECT_EQ(bind.arguments[6].kind, BindArgument::Kind::number);
}

TEST(Bind, FirstDimensionsThatATensorLacksKeepTheManifestsValues) {
  const Manifest m = parsed(
      "call = \"x: T[H], w: f32[H]\"\nout = \"out: T[H]\"\narg = { rows = 1, stride_x = \"H\", stride_out = "
      "\"H\" }\n");
  for (const BindLayout& layout : m.binds[0].layouts)
    EXPECT_FALSE(layout.strides.size() > 1) << layout.operand;
  EXPECT_EQ(m.binds[0].arguments[3].value.text(), "1");
  expect_error(Errc::manifest, {"'rows' of the kernel is not optional, and nothing gives it"},
               [] { parsed("call = \"x: T[H], w: f32[H]\"\nout = \"out: T[H]\"\n"); });
}

TEST(Bind, ATensorMayHaveElementsOfUe8m0) {
  std::string text = manifest_with("call = \"x: T[..., H], w: ue8m0[H]\"\nout = \"out: T[..., H]\"\n");
  text.replace(text.find("ptr<f32>"), 8, "ptr<ue8m0>");
  EXPECT_EQ(parse_manifest(text, "scale.toml").binds[0].operands[1].dtype.fixed, Dtype::ue8m0);
}

struct Mistake {
  const char *name, *bind, *message;
};
void PrintTo(const Mistake& m, std::ostream* out) { *out << m.name; }

class Mistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, AreNamed) {
  expect_error(Errc::manifest, {GetParam().message, "scale.toml:"}, [] { parsed(GetParam().bind); });
}

constexpr const char* kOut = "\nout = \"out: T[..., H]\"\n";
const Mistake kMistakes[] = {
    {"NoCall", "name = \"s\"\n", "call"},
    {"NoType", "call = \"x\"\n", "expected ':'"},
    {"UnknownType", "call = \"x: tensor\"\n", "'tensor' is unknown; allowed: int bool float"},
    {"UnknownDtype", "call = \"x: Q[..., H]\"\n", "'Q' of 'x' is no dtype and no dtype parameter"},
    {"TwoOfOneName", "call = \"x: T[..., H], x: T[H]\"\n", "two operands are called 'x'"},
    {"Unclosed", "call = \"x: T[..., H\"\n", "expected ']'"},
    {"ParameterFromNowhere", "call = \"x: T[..., W], w: f32[W]\"\nout = \"out: T[..., W]\"\n",
     "parameter H has no default"},
    {"ArgumentFromNowhere", "call = \"x: T[..., H]\"\nout = \"out: T[..., H]\"\n",
     "argument 'w' of the kernel is not optional"},
    {"OtherElementType", "call = \"x: T[..., H], w: T[H]\"\nout = \"out: T[..., H]\"\n",
     "'w' has another element type than argument 'w'"},
    {"NotWritten", "call = \"x: T[..., H], w: f32[H], out: T[..., H]\"\n",
     "the kernel writes to argument 'out'"},
    {"UnknownParameter",
     "call = \"x: T[..., H], w: f32[H]\"\nout = \"out: T[..., H]\"\nparam = { MODDE = 1 }\n",
     "'MODDE' is no parameter; did you mean 'MODE'?"},
    {"UnknownArgument", "call = \"x: T[..., H], w: f32[H]\"\nout = \"out: T[..., H]\"\narg = { cols = 1 }\n",
     "'cols' is no argument"},
    {"UnknownTensor", "call = \"x: T[..., H], w: f32[dim(y, 0)]\"\nout = \"out: T[..., H]\"\n",
     "dim takes a tensor of the signature, not 'y'"},
    {"NoDimension", "call = \"x: T[..., H], w: f32[dim(x)]\"\nout = \"out: T[..., H]\"\n",
     "dim takes a tensor and a dimension"},
    {"UnknownChoice", "call = \"x: T[..., H], w: f32[H], mode: MODE = sideways\"\nout = \"out: T[..., H]\"\n",
     "MODE.sideways"},
    {"BadNumber", "call = \"x: T[..., H], w: f32[H], eps: float = much\"\nout = \"out: T[..., H]\"\n",
     "'much', the default of 'eps', is no number"},
    {"OutputWithTwoShapes", "call = \"x: T[..., H], w: f32[H]\"\nout = \"out: T[H] | [..., H]\"\n",
     "must be a tensor with one shape"},
    {"DimensionNamedAsAChoice", "call = \"x: T[..., H], w: f32[MODE]\"\nout = \"out: T[..., H]\"\n",
     "'MODE' is a parameter, and no integer"},
    {"ParameterThatNoInputGives", "call = \"x: T[..., H], w: f32[H + MODE]\"\nout = \"out: T[..., H]\"\n",
     "'MODE' cannot be used here: it is a parameter that no input gives"},
    {"NamedTwice", "call = \"x: T[..., H], w: f32[H]\"\nlet = { x = 1 }\nout = \"out: T[..., H]\"\n",
     "'x' cannot name a number"},
};
INSTANTIATE_TEST_SUITE_P(Bind, Mistakes, ::testing::ValuesIn(kMistakes),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(Bind, AManifestSaysWhatItNeeds) {
  const std::string rest = manifest_with(std::string("call = \"x: T[..., H], w: f32[H]\"") + kOut);
  EXPECT_EQ(parse_manifest("needs = [\"bind\"]\n" + rest, "scale.toml").binds.size(), 1u);
  expect_error(
      Errc::manifest,
      {"the template needs 'telepathy', which this version of kiln does not know; it knows: bind features"},
      [&] { parse_manifest("needs = [\"telepathy\"]\n" + rest, "scale.toml"); });
}

TEST(Bind, TwoOperatorsOfOneNameAreRefused) {
  const std::string one = std::string("call = \"x: T[..., H], w: f32[H]\"") + kOut;
  EXPECT_THROW(parsed(one + "[[bind]]\n" + one), Error);
  EXPECT_EQ(parsed(one + "[[bind]]\nname = \"other\"\n" + one).binds.size(), 2u);
}

/// The manifest with a parameter ROWS that the argument rows picks.
Manifest of_family(std::string bind, const std::string& more = "") {
  return parse_manifest(manifest_with(std::move(bind)) + "[param.ROWS]\nkind = \"int\"\nvalues = [4, 8]\n" +
                            more + "[family]\nby = \"rows\"\nparameter = \"ROWS\"\n",
                        "scale.toml");
}

TEST(BindFamily, TheArgumentGivesTheParameter) {
  for (const char* more : {"", "default = 8\n"}) {
    const Manifest m = of_family("call = \"x: T[..., H], w: f32[H]\"\nout = \"out: T[..., H]\"\n", more);
    const BindSpec& bind = m.binds[0];
    ASSERT_EQ(bind.parameters.size(), 3u);
    const BindParameter& rows = bind.parameters[2];
    EXPECT_EQ(rows.parameter, parameter_index(m, "ROWS"));
    EXPECT_TRUE(rows.picks_member);
    EXPECT_EQ(rows.value.text(), "rows");
    EXPECT_NE(
        json_of(m, bind).find(R"("name":"ROWS","kind":"int","value":"rows","given_by":null,"family":true)"),
        std::string::npos)
        << json_of(m, bind);
  }
}

TEST(BindFamily, AnOperatorMayGiveTheParameterItself) {
  const Manifest m =
      of_family("call = \"x: T[..., H], w: f32[H]\"\nout = \"out: T[..., H]\"\nparam = { ROWS = 8 }\n");
  EXPECT_FALSE(m.binds[0].parameters[2].picks_member);
  const Manifest input = of_family("call = \"x: T[..., H], w: f32[H], n: ROWS\"\nout = \"out: T[..., H]\"\n");
  EXPECT_FALSE(input.binds[0].parameters[2].picks_member);
}

TEST(BindFamily, TheInputsMustSayTheArgument) {
  expect_error(Errc::manifest,
               {"scale.toml:", "argument 'rows', which picks ROWS of [family], needs more than the inputs",
                "'stride_x + 0 * rows'", "give ROWS in param"},
               [] {
                 of_family(
                     "call = \"x: T[..., H], w: f32[H], rows: int\"\nout = \"out: T[..., H]\"\n"
                     "arg = { rows = \"stride_x + 0 * rows\" }\n");
               });
}

}  // namespace
}  // namespace kiln::source

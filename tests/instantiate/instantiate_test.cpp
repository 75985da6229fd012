#include "instantiate/instantiate.hpp"

#include "tests/manifest/memory_template.hpp"
#include "tests/manifest/text.hpp"

namespace kiln::source {
namespace {

const std::string kReference =
    "[reference]\nsource = \"r.cu\"\ninstantiate = \"kiln::reference::rms_norm<{H}>\"\ngrid = [1]\nblock = "
    "[1]\n";

Instantiation make(const std::string& manifest, std::vector<NamedValue> values, Which which = Which::kernel) {
  const auto origin = in_memory(manifest);
  return instantiate(origin, resolve(origin->manifest, positional(origin->manifest, values), base::Arch{90}),
                     which);
}
const std::vector<NamedValue> kValues = {{"T", "bf16"}, {"H", 4096}};

TEST(Instantiate, FillsTheNameExpression) {
  const Instantiation i = make(kManifest, kValues);
  EXPECT_EQ(i.name_expression, "kiln::rms_norm<kiln::bf16, 4096, 8>");
  EXPECT_EQ(i.unit, "rms_norm");
  EXPECT_EQ(i.source, "the source");
  EXPECT_EQ(i.options, (std::vector<std::string>{"-std=c++17", "-DNDEBUG"}));
  EXPECT_EQ(i.resolved.specialization.to_string(), "rms_norm T=bf16 H=4096 VEC=8 ACT=silu");
}

TEST(Instantiate, SpellsEveryKind) {
  const auto expression = [](const std::string& text, const std::string& more = "",
                             std::vector<NamedValue> extra = {}) {
    std::string manifest = changed("kiln::rms_norm<{T}, {H}, {VEC}>", text) + more;
    std::vector<NamedValue> values = kValues;
    values.insert(values.end(), extra.begin(), extra.end());
    return make(manifest, values).name_expression;
  };
  EXPECT_EQ(expression("f<{ACT}>"), "f<kiln::Act::silu>");
  EXPECT_EQ(expression("f<{CHUNKS}>"), "f<512>");
  EXPECT_EQ(expression("f<{B}>", "[param.B]\nkind = \"bool\"\ndefault = true\n"), "f<true>");
  EXPECT_EQ(expression("f<{E}>", "[param.E]\nkind = \"enum\"\nvalues = [\"a\", \"b\"]\ndefault = \"b\"\n"),
            "f<1>");
  EXPECT_EQ(
      expression("f<{N}>", "[param.N]\nkind = \"int\"\nrange = [-9223372036854775808, 5]\n", {{"N", -3}}),
      "f<-3>");
  EXPECT_EQ(expression("f<{N}>", "[param.N]\nkind = \"int\"\nrange = [-9223372036854775808, 5]\n",
                       {{"N", "-9223372036854775807"}}),
            "f<-9223372036854775807>");
  EXPECT_EQ(expression("f<S{{ {H} }}>"), "f<S{ 4096 }>");
  EXPECT_EQ(expression("f<{H}, {H}>"), "f<4096, 4096>");
}

TEST(Instantiate, OptionsComeInAFixedOrder) {
  const std::string compile =
      "[compile]\noptions = [\"-fmad=false\", \"--use_fast_math\"]\ndefine = { ZED = \"1\", ALPHA = \"a b\" "
      "}\nminimal = true\n"
      "default_device = true\nstd = \"c++20\"\npreinclude = [\"a.h\", \"b.h\"]\n";
  EXPECT_EQ(make(with(compile), kValues).options,
            (std::vector<std::string>{"-std=c++20", "-DNDEBUG", "-default-device", "--minimal", "-DZED=1",
                                      "-DALPHA=a b", "-fmad=false", "--use_fast_math", "--pre-include=a.h",
                                      "--pre-include=b.h"}));
}

TEST(Instantiate, MakesTheReferenceByTheSameMeans) {
  const Instantiation i = make(with(kReference), kValues, Which::reference);
  EXPECT_EQ(i.name_expression, "kiln::reference::rms_norm<4096>");
  EXPECT_EQ(i.unit, "rms_norm@reference");
  EXPECT_EQ(i.source, "the reference");
  EXPECT_EQ(i.which, Which::reference);
  expect_error(Errc::source, {"'rms_norm' has no [reference]"},
               [] { make(kManifest, kValues, Which::reference); });
}

}  // namespace
}  // namespace kiln::source

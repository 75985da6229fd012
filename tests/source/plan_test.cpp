#include "manifest_text.hpp"
#include "source/instantiate.hpp"

namespace kiln::source {
namespace {

std::string text(const PlannedSpecialization& planned) {
  return Specialization{planned.template_name, planned.values}.to_string() +
         (planned.arch.empty() ? "" : " @" + planned.arch);
}
std::vector<std::string> texts(const std::vector<PlannedSpecialization>& plan) {
  std::vector<std::string> out;
  for (const auto& planned : plan) out.push_back(text(planned));
  return out;
}

TEST(Plan, ListsMultiplyInOrderTheLastFastest) {
  const Manifest m = parse(with("[[prewarm]]\nT = [\"bf16\", \"f16\"]\nH = [64, 128]\nVEC = 8\n"));
  EXPECT_EQ(texts(shipped_plan(m)),
            (std::vector<std::string>{"rms_norm T=bf16 H=64 VEC=8", "rms_norm T=bf16 H=128 VEC=8",
                                      "rms_norm T=f16 H=64 VEC=8", "rms_norm T=f16 H=128 VEC=8"}));
  EXPECT_TRUE(shipped_plan(parse(kManifest)).empty());
}

TEST(Plan, RepeatsAreRemovedWhateverTheirOrder) {
  const Manifest m =
      parse(with("[[prewarm]]\nT = \"bf16\"\nH = [64, 64]\n[[prewarm]]\nH = [128, 64]\nT = \"bf16\"\n"));
  EXPECT_EQ(texts(shipped_plan(m)),
            (std::vector<std::string>{"rms_norm T=bf16 H=64", "rms_norm H=128 T=bf16"}));
}

TEST(Plan, FilesNameTemplateAndArch) {
  const auto plan = parse_plan(R"toml(
[[prewarm]]
template = "rms_norm"
arch = "90"
T = ["bf16", "f16"]
H = 4096
GEMMA = [true, false]
[[prewarm]]
template = "softmax"
)toml",
                               "plan.toml");
  EXPECT_EQ(texts(plan), (std::vector<std::string>{"rms_norm T=bf16 H=4096 GEMMA=true @sm_90a",
                                                   "rms_norm T=bf16 H=4096 GEMMA=false @sm_90a",
                                                   "rms_norm T=f16 H=4096 GEMMA=true @sm_90a",
                                                   "rms_norm T=f16 H=4096 GEMMA=false @sm_90a", "softmax"}));
  EXPECT_TRUE(parse_plan("", "plan.toml").empty());
}

TEST(Plan, FileErrorsNameTheLine) {
  const auto refused = [](const std::string& toml, std::initializer_list<std::string> pieces) {
    expect_error(Errc::manifest, pieces, [&] { parse_plan(toml, "dir/plan.toml"); });
  };
  refused("[[prewarm]]\nT = \"bf16\"\n", {"dir/plan.toml:1: [[prewarm]] needs 'template'"});
  refused("[[prewarm]]\ntemplate = 3\n", {"dir/plan.toml:2: [[prewarm]] template", "expected a string"});
  refused("[[prewarm]]\ntemplate = \"a\"\nH = 1.5\n", {"dir/plan.toml:3: [[prewarm]] H", "found a fraction"});
  refused("[[prewarm]]\ntemplate = \"a\"\nH = []\n", {"dir/plan.toml:3:", "empty list"});
  refused("[[prewarm]]\ntemplate = \"a\"\narch = \"sm_1\"\n",
          {"dir/plan.toml:3: [[prewarm]] arch", "unknown arch 'sm_1'"});
  refused("[[prewarm]]\ntemplate = \"a\"\narch = 90\n",
          {"dir/plan.toml:3: [[prewarm]] arch", "expected a string"});
  refused("[[prewarm]]\ntemplate = \"a\"\n\"H-1\" = 1\n",
          {"dir/plan.toml:3:", "'H-1' cannot be the name of a parameter"});
  refused("[prewarm]\ntemplate = \"a\"\n", {"dir/plan.toml:1: prewarm: must be written [[prewarm]]"});
  refused("[[prewam]]\ntemplate = \"a\"\n",
          {"dir/plan.toml:1: unknown table 'prewam'", "did you mean 'prewarm'?"});
  refused("[[prewarm]\n", {"dir/plan.toml:1:"});
}

TEST(Plan, ProductsThatNobodyCanCompileAreRefused) {
  std::string list = "[0";
  for (int i = 1; i < 1001; ++i) list += "," + std::to_string(i);
  list += "]";
  expect_error(Errc::manifest, {"p.toml:1: [[prewarm]]: more than 1000000 specialisations"}, [&] {
    parse_plan("[[prewarm]]\ntemplate = \"a\"\nA = " + list + "\nB = " + list + "\n", "p.toml");
  });
  std::string many = "[[prewarm]]\ntemplate = \"a\"\n";
  for (int i = 0; i < 100; ++i) many += "P" + std::to_string(i) + " = [1, 2]\n";
  expect_error(Errc::manifest, {"more than 1000000"}, [&] { parse_plan(many, "p.toml"); });
}

}  // namespace
}  // namespace kiln::source

#include "instantiate/plan.hpp"
#include "instantiate/instantiate.hpp"
#include "manifest/read/prewarm_values.hpp"
#include "support/nightly.hpp"
#include "tests/manifest/text.hpp"

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
          {"dir/plan.toml:3: [[prewarm]] arch", "expected a string or a list of strings"});
  refused("[[prewarm]]\ntemplate = \"a\"\n\"H-1\" = 1\n",
          {"dir/plan.toml:3:", "'H-1' cannot be the name of a parameter"});
  refused("[[prewarm]]\ntemplate = \"a\"\nH = 1\ntuned = [\"V\"]\n",
          {"dir/plan.toml:4: [[prewarm]] tuned", "'V' has no value in this row"});
  refused("[prewarm]\ntemplate = \"a\"\n", {"dir/plan.toml:1: prewarm: must be written [[prewarm]]"});
  refused("[[prewam]]\ntemplate = \"a\"\n",
          {"dir/plan.toml:1: unknown table 'prewam'", "did you mean 'prewarm'?"});
  refused("[[prewarm]\n", {"dir/plan.toml:1:"});
}

const std::string kRow = "[[prewarm]]\ntemplate = \"a\"\n";
void expect_refused(const std::string& toml, std::initializer_list<std::string> pieces) {
  expect_error(Errc::manifest, pieces, [&] { parse_plan(toml, "p.toml"); });
}

TEST(Plan, ProductsThatNobodyCanCompileAreRefusedWithTheirCount) {
  expect_refused(kRow + "A = { from = 0, to = 1000, step = 1 }\nB = { from = 1, to = 1001, step = 1 }\n",
                 {"p.toml:1: [[prewarm]]: 1002001 specialisations; a plan may have 1000000"});
  std::string many = kRow;
  for (int i = 0; i < 100; ++i) many += "P" + std::to_string(i) + " = [1, 2]\n";
  expect_refused(many, {"p.toml:1: [[prewarm]]: more than 2^64 specialisations"});
}

TEST(Plan, AMillionSpecialisationsAreTheMost) {
  KILN_NIGHTLY_ONLY();  // each row below takes seconds to expand
  expect_refused(kRow + "A = { from = 1, to = 999999, step = 1 }\n" + kRow + "A = [0, 1]\n",
                 {"p.toml:4: [[prewarm]]: 2 specialisations after 999999 of the rows before"});
  EXPECT_EQ(parse_plan(kRow + "A = { from = 1, to = 1000000, step = 1 }\n", "p.toml").size(), kMaxPlanned);
}

std::vector<std::string> values_of(const std::string& value) {
  std::vector<std::string> out;
  for (const auto& planned : parse_plan("[[prewarm]]\ntemplate = \"a\"\nH = " + value + "\n", "p.toml"))
    out.push_back(planned.values.at(0).value);
  return out;
}
using Texts = std::vector<std::string>;

TEST(Plan, RangesAddOrMultiplyAndIncludeTheirEnds) {
  EXPECT_EQ(values_of("{ from = 1024, to = 4096, step = 1024 }"), (Texts{"1024", "2048", "3072", "4096"}));
  EXPECT_EQ(values_of("{ from = 64, to = 512, times = 2 }"), (Texts{"64", "128", "256", "512"}));
  EXPECT_EQ(values_of("{ from = 1, to = 8, step = 3 }"), (Texts{"1", "4", "7"}));
  EXPECT_EQ(values_of("{ from = 3, to = 50, times = 4 }"), (Texts{"3", "12", "48"}));
  EXPECT_EQ(values_of("{ from = -2, to = 2, step = 2 }"), (Texts{"-2", "0", "2"}));
  EXPECT_EQ(values_of("{ from = 7, to = 7, step = 5 }"), (Texts{"7"}));
  EXPECT_EQ(values_of("[1, { from = 4, to = 16, times = 2 }, 100]"), (Texts{"1", "4", "8", "16", "100"}));
}

TEST(Plan, RangesReachTheEndsOfTheIntegers) {
  EXPECT_EQ(values_of("{ from = 9223372036854775806, to = 9223372036854775807, step = 1 }"),
            (Texts{"9223372036854775806", "9223372036854775807"}));
  EXPECT_EQ(values_of("{ from = 3074457345618258603, to = 9223372036854775807, times = 2 }"),
            (Texts{"3074457345618258603", "6148914691236517206"}));
  EXPECT_EQ(
      values_of("{ from = -9223372036854775808, to = 9223372036854775807, step = 9223372036854775807 }"),
      (Texts{"-9223372036854775808", "-1", "9223372036854775806"}));
}

TEST(Plan, RangesThatCannotBeRightNameTheLine) {
  const auto refused = [](const std::string& value, std::initializer_list<std::string> pieces) {
    expect_error(Errc::manifest, pieces, [&] { values_of(value); });
  };
  refused("{ from = 1, to = 8, step = 0 }", {"p.toml:3: [[prewarm]] H step: 0 must be 1 or more"});
  refused("{ from = 1, to = 8, step = -1 }", {"p.toml:3:", "-1 must be 1 or more"});
  refused("{ from = 1, to = 8, times = 1 }", {"p.toml:3: [[prewarm]] H times: 1 must be 2 or more"});
  refused("{ from = 0, to = 8, times = 2 }", {"p.toml:3: [[prewarm]] H from: 0 must be 1 or more"});
  refused("{ from = 9, to = 8, step = 1 }", {"p.toml:3: [[prewarm]] H: from = 9 is above to = 8"});
  refused("{ from = 1, to = 8 }", {"p.toml:3: [[prewarm]] H: needs one of 'step'"});
  refused("{ from = 1, to = 8, step = 1, times = 2 }", {"p.toml:3: [[prewarm]] H: needs only one of 'step'"});
  refused("{ from = 1, step = 1 }", {"p.toml:3: [[prewarm]] H needs 'to'"});
  refused("{ from = 1, to = 8, stp = 1 }", {"p.toml:3:", "unknown key 'stp'", "did you mean 'step'?"});
  refused("{ from = 1.5, to = 8, step = 1 }", {"p.toml:3:", "expected an integer, found a fraction"});
  refused("{ from = 1, to = 2000000, step = 1 }", {"p.toml:3: [[prewarm]] H: 2000000 values"});
  refused("{ from = -9223372036854775808, to = 9223372036854775807, step = 1 }",
          {"p.toml:3:", "2^64 values"});
  refused("[1, { from = 1, to = 1000000, step = 1 }]", {"p.toml:3: [[prewarm]] H: 1000001 values"});
}

TEST(Plan, AManifestsRowsHaveRangesAndArchs) {
  const Manifest m = parse(with(
      "[[prewarm]]\nT = \"bf16\"\nH = { from = 64, to = 256, times = 2 }\narch = [\"80\", \"sm_90\"]\n"));
  EXPECT_EQ(texts(shipped_plan(m)),
            (Texts{"rms_norm T=bf16 H=64 @sm_80", "rms_norm T=bf16 H=128 @sm_80",
                   "rms_norm T=bf16 H=256 @sm_80", "rms_norm T=bf16 H=64 @sm_90a",
                   "rms_norm T=bf16 H=128 @sm_90a", "rms_norm T=bf16 H=256 @sm_90a"}));
  expect_error(Errc::manifest, {"'65537' is not allowed; allowed: 1 to 65536"}, [] {
    parse(with("[[prewarm]]\nT = \"bf16\"\nH = { from = 65536, to = 65537, step = 1 }\n"));
  });
  expect_error(Errc::manifest, {"'1' is not allowed; allowed: f32, f16, bf16"},
               [] { parse(with("[[prewarm]]\nT = { from = 1, to = 2, step = 1 }\nH = 1\n")); });
}

TEST(Plan, ARowsArchMayBeAList) {
  const auto plan = parse_plan(
      "[[prewarm]]\ntemplate = \"a\"\narch = [\"80\", \"sm_90\", \"90a\"]\nH = [1, 2]\n", "p.toml");
  EXPECT_EQ(texts(plan), (Texts{"a H=1 @sm_80", "a H=2 @sm_80", "a H=1 @sm_90a", "a H=2 @sm_90a"}));
  expect_error(Errc::manifest, {"p.toml:3: [[prewarm]] arch: an empty list"},
               [] { parse_plan("[[prewarm]]\ntemplate = \"a\"\narch = []\n", "p.toml"); });
  expect_error(Errc::manifest, {"p.toml:3: [[prewarm]] arch", "unknown arch 'x'"},
               [] { parse_plan("[[prewarm]]\ntemplate = \"a\"\narch = [\"80\", \"x\"]\n", "p.toml"); });
}

TEST(Plan, RowsSayWhereTheyStandAndRepeatsAreCounted) {
  PlanNotes notes;
  const auto plan =
      parse_plan("\n[[prewarm]]\ntemplate = \"a\"\nH = [1, 1]\n[[prewarm]]\nH = 1\ntemplate = \"a\"\n",
                 "p.toml", &notes);
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].row->where("H"), "p.toml:4: [[prewarm]] H");
  EXPECT_EQ(plan[0].row->where("G"), "p.toml:2: [[prewarm]]");
  EXPECT_EQ(notes.repeats, 2u);
}

}  // namespace
}  // namespace kiln::source

// Findings from a manifest alone, and the debris of an image.
#include <gtest/gtest.h>

#include "library/work_lists.hpp"
#include "tools/kiln/lint/debris.hpp"
#include "tools/kiln/lint/manifest.hpp"
#include "tools/kiln/lint/uses.hpp"

namespace kiln::cli {
namespace {

const std::string kHead = R"toml(format = 1
[template]
name = "t"
source = "t.cu"
instantiate = "t<{T}>"
[param.T]
kind = "dtype"
values = ["f32"]
doc = "d"
)toml";
const std::string kLaunch = "[launch]\ngrid = [\"1\"]\nblock = [\"32\"]\n";

LintFindings lint(const std::string& toml) {
  const source::TomlValue tree = source::parse_toml(toml, "t.toml");
  return lint_manifest(source::parse_manifest(toml, "t.toml", library::work_lists()),
                       ManifestLines(tree, "t.toml"));
}

/// The first finding with this id whose text contains `what`, such as "warning t.toml:10", or "nothing".
std::string found(const LintFindings& findings, const std::string& id, const std::string& what = "") {
  for (const LintFinding& f : findings) {
    if (f.id != id || f.text.find(what) == std::string::npos) continue;
    constexpr const char* names[] = {"note", "warning", "error"};
    return std::string(names[static_cast<int>(f.severity)]) + ' ' + f.place;
  }
  return "nothing";
}

Reach reach(const std::string& toml, const char* name) {
  return Uses(source::parse_manifest(toml, "t.toml", library::work_lists())).of(name);
}

const std::string kP = "[param.P]\nkind = \"int\"\nvalues = [1]\n";  // line 10

TEST(LintManifest, WarnsOfAParameterThatNothingReads) {
  EXPECT_EQ(found(lint(kHead + kP + kLaunch), "unused-parameter", "'P'"), "warning t.toml:10");
  EXPECT_EQ(found(lint(kHead + kLaunch), "unused-parameter"), "nothing");
}

struct Use {
  const char* name;
  std::string toml;
  Reach reach;
};
[[maybe_unused]] void PrintTo(const Use& use, std::ostream* out) { *out << use.name; }
class LintUses : public ::testing::TestWithParam<Use> {};

TEST_P(LintUses, ReachOfTheParameter) { EXPECT_EQ(reach(GetParam().toml, "P"), GetParam().reach); }

std::string with_instantiate(const std::string& text) {
  std::string out = kHead;
  out.replace(out.find("t<{T}>"), 6, text);
  return out;
}
const std::string kArg = "[[arg]]\nname = \"x\"\ntype = \"ptr<T>\"\n";
const Use kUses[] = {
    {"Nowhere", kHead + kP + kLaunch, Reach::none},
    {"NameExpression", with_instantiate("t<{T}, {P}>") + kP + kLaunch, Reach::code},
    {"DeriveInTheNameExpression",
     with_instantiate("t<{T}, {D}>") + kP + "[derive]\nD = \"2 * P\"\n" + kLaunch, Reach::code},
    {"DeriveThatNothingReads", kHead + kP + "[derive]\nD = \"2 * P\"\n" + kLaunch, Reach::none},
    {"DeriveInTheGeometry",
     kHead + kP + "[derive]\nD = \"2 * P\"\n[launch]\ngrid = [\"D\"]\nblock = [\"32\"]\n", Reach::launch},
    {"Define", kHead + kP + "[compile]\ndefine = { N = \"{P}\" }\n" + kLaunch, Reach::code},
    {"Global", kHead + kP + kLaunch + "[[global]]\nname = \"g\"\nsymbol = \"g<{P}>\"\n", Reach::code},
    {"Export", kHead + kP + kLaunch + "[export]\nE = \"sizeof(S<{P}>)\"\n", Reach::code},
    {"Geometry", kHead + kP + "[launch]\ngrid = [\"1\"]\nblock = [\"P\"]\n", Reach::launch},
    {"Shape", kHead + kP + kArg + "shape = [\"P\"]\n" + kLaunch, Reach::launch},
    {"Alignment", kHead + kP + kArg + "shape = [\"1\"]\nalign = \"P\"\n" + kLaunch, Reach::launch},
    {"Existence", kHead + kP + kArg + "shape = [\"1\"]\nexists = \"P\"\n" + kLaunch, Reach::launch},
    {"Fill", kHead + kP + kArg + "shape = [\"1\"]\nfill = \"int(0, P)\"\n" + kLaunch, Reach::launch},
    {"FillByAKernel", kHead + kP + kArg + "shape = [\"1\"]\nfill = \"ns::fill<{P}>\"\n" + kLaunch,
     Reach::code},
    {"Requirement", kHead + kP + "[[require]]\nexpr = \"P > 0\"\nmessage = \"m\"\n" + kLaunch, Reach::launch},
    {"Cost", kHead + kP + kLaunch + "[cost]\nread = \"P\"\nwrite = \"1\"\nflops = \"1\"\n", Reach::launch},
    {"DefaultOfOneInTheCode",
     with_instantiate("t<{T}, {Q}>") + kP + "[param.Q]\nkind = \"int\"\nvalues = [1]\ndefault = \"P\"\n" +
         kLaunch,
     Reach::launch},
    {"DefaultOfOneThatNothingReads",
     kHead + kP + "[param.Q]\nkind = \"int\"\nvalues = [1]\ndefault = \"P\"\n" + kLaunch, Reach::none},
    {"TextOfAValue",
     with_instantiate("t<{T}, {Q}>") + kP +
         "[param.Q]\nkind = \"type\"\nvalues = { a = \"S<{P}>\" }\ndefault = \"a\"\n" + kLaunch,
     Reach::code},
    {"FurtherEntryPoint",
     kHead + kP + kLaunch + "[[kernel]]\nname = \"k\"\ninstantiate = \"k<{P}>\"\n" +
         "[kernel.launch]\ngrid = [\"1\"]\nblock = [\"32\"]\n",
     Reach::code},
    {"OneArch", kHead + kP + kLaunch + "[arch.sm_90a]\ninstantiate = \"t<{T}, {P}>\"\n", Reach::code},
};
INSTANTIATE_TEST_SUITE_P(Manifest, LintUses, ::testing::ValuesIn(kUses),
                         [](const auto& row) { return row.param.name; });

TEST(LintManifest, NotesAParameterThatOnlyTheLaunchReads) {
  EXPECT_EQ(
      found(lint(kHead + kP + "[launch]\ngrid = [\"1\"]\nblock = [\"P\"]\n"), "unused-parameter", "'P'"),
      "note t.toml:10");
}

TEST(LintManifest, WarnsOfDerivesAndRunTimeValuesThatNothingReads) {
  const LintFindings all = lint(
      kHead + "[derive]\nA = \"1\"\nB = \"A\"\n[runtime]\nrows = { value = 1, doc = \"d\" }\n" + kLaunch);
  EXPECT_EQ(found(all, "unused-derive", "'A'"), "warning t.toml:11");
  EXPECT_EQ(found(all, "unused-derive", "'B'"), "warning t.toml:12");
  EXPECT_EQ(found(all, "unused-runtime", "'rows'"), "warning t.toml:14");
}

TEST(LintManifest, NotesAnExportThatNothingReads) {
  const std::string with = kHead + "[export]\nBYTES = \"sizeof(S)\"\n";
  EXPECT_EQ(found(lint(with + kLaunch), "unused-export", "BYTES"), "note t.toml:11");
  EXPECT_EQ(found(lint(with + kLaunch + "smem = \"BYTES\"\n"), "unused-export"), "nothing");
}

TEST(LintManifest, WarnsOfATensorMapThatNoKernelGets) {
  const std::string map =
      "[[arg]]\nname = \"x\"\ntype = \"ptr<f32>\"\n"
      "[[tensormap]]\nname = \"m\"\nof = \"x\"\ndims = [64]\nbox = [64]\n";
  EXPECT_EQ(found(lint(kHead + map + kLaunch), "unused-tensormap"), "nothing");
  std::string left_out = kHead + map + kLaunch;
  const std::string at = "[template]\n";
  left_out.insert(left_out.find(at) + at.size(), "arguments = [\"x\"]\n");
  EXPECT_NE(found(lint(left_out), "unused-tensormap", "'m'").find("warning"), std::string::npos);
  const std::string on_one_arch = left_out + "[arch.sm_90a]\narguments = [\"m\"]\n";
  EXPECT_EQ(found(lint(on_one_arch), "unused-tensormap"), "nothing");
}

TEST(LintManifest, WarnsOfAShapeInAMacroAndNotOfATypeInOne) {
  const std::string define = "[compile]\ndefine = { N = \"{P}\", TYPE = \"{T}\" }\n";
  const LintFindings all = lint(kHead + kP + define + kLaunch);
  EXPECT_EQ(found(all, "shape-in-define", "macro N"), "warning t.toml:14");
  EXPECT_EQ(found(all, "shape-in-define", "macro TYPE"), "nothing");
}

TEST(LintManifest, WarnsOfAPlanThatKilnRunCannotMake) {
  const std::string planned =
      "[[arg]]\nname = \"plan\"\ntype = \"ptr<i32>\"\n[[arg]]\nname = \"workers\"\ntype = \"i32\"\nvalue = "
      "4\n"
      "[work_list]\nkind = \"attention\"\nargument = \"plan\"\nworkers = \"workers\"\ntile_rows = 8\ntile_kv "
      "= 8\n"
      "group = \"P\"\n";
  const LintFindings none = lint(kHead + kP + planned + kLaunch);
  EXPECT_NE(found(none, "no-shape", "add [work_list.run]"), "nothing");
  const std::string run = "[work_list.run]\nrequests = 2\nkv_tokens = \"TIMES * requests\"\nkv_heads = 1\n";
  const LintFindings all = lint(kHead + kP + "[derive]\nTIMES = 7\n" + planned + run + kLaunch);
  EXPECT_EQ(found(all, "no-shape"), "nothing");
  EXPECT_EQ(found(all, "unused-derive"), "nothing") << "[work_list.run] reads it";
  EXPECT_EQ(found(all, "unused-parameter"), found(none, "unused-parameter")) << "[work_list] reads P";
}

TEST(LintManifest, SaysWhatIsLeftOut) {
  const LintFindings all = lint(kHead + kArg + kLaunch);
  EXPECT_EQ(found(all, "no-shape", "'x'"), "warning t.toml:10");
  for (const char* id : {"no-reference", "no-prewarm", "no-cost", "no-limits", "no-summary", "no-doc"})
    EXPECT_EQ(found(all, id).substr(0, 4), "note") << id;
  EXPECT_EQ(found(all, "no-tolerance"), "nothing");
  const std::string reference =
      "[reference]\nsource = \"r.cu\"\ninstantiate = \"r\"\ngrid = [\"1\"]\nblock = [\"32\"]\n";
  EXPECT_EQ(found(lint(kHead + kLaunch + reference), "no-tolerance"), "note t.toml:13");
  EXPECT_EQ(found(lint(kHead + kLaunch + reference), "no-reference"), "nothing");
}

TEST(LintManifest, AsksNoReferenceOfAnInternalTemplate) {
  std::string internal = kHead;
  internal.insert(internal.find("[param.T]"), "internal = true\n");
  EXPECT_EQ(found(lint(internal + kLaunch), "no-reference"), "nothing");
}

TEST(LintDebris, NamesWhereAVariableComesFrom) {
  EXPECT_EQ(origin_of_variable("_ZN4cuda3std3__417integral_constantIbLb0EE5valueE"), "cuda::std");
  EXPECT_EQ(origin_of_variable("_ZN18cooperative_groups4__v17details5_tileE"), "cooperative_groups::details");
  EXPECT_EQ(origin_of_variable("table"), "the global namespace");
  EXPECT_EQ(origin_of_variable("$str$3"), "strings");
}

TEST(LintManifest, NamesCandidatesThatNoSearchTakes) {
  const auto manifest = [](const std::string& candidates) {
    return kHead + "[param.VEC]\nkind = \"int\"\nvalues = [4, 8, 16]\ndefault = 8\ntune = " + candidates +
           "\ndoc = \"d\"\n[[arg]]\nname = \"x\"\ntype = \"ptr<T>\"\nalign = \"VEC\"\nshape = "
           "[\"1\"]\n" +
           kLaunch + "[[prewarm]]\nT = \"f32\"\n[[prewarm]]\nT = \"f32\"\nVEC = 8\n";
  };
  EXPECT_EQ(found(lint(manifest("[4, 8, 16]")), "strict-candidate", "VEC=16"), "warning t.toml:10");
  EXPECT_EQ(found(lint(manifest("[4, 8, 16]")), "strict-candidate", "VEC=4"), "nothing");
  EXPECT_EQ(found(lint(manifest("[4, 8]")), "strict-candidate"), "nothing");
}

TEST(LintManifest, TheParameterOfAFamilyIsUsedWhenMembersDiffer) {
  const std::string family =
      "[param.ROWS]\nkind = \"int\"\nvalues = [8, 16]\ndoc = \"d\"\n[family]\nby = \"rows\"\nparameter = "
      "\"ROWS\"\n[[arg]]\nname = \"rows\"\ntype = \"i32\"\ndoc = \"d\"\n";
  EXPECT_NE(found(lint(kHead + family + kLaunch), "unused-parameter", "'ROWS'").find("warning"),
            std::string::npos);
  const std::string tuned =
      "[param.TILE]\nkind = \"int\"\nvalues = [1, 2]\ndefault = 1\ntune = [2]\ndoc = \"d\"\n";
  EXPECT_EQ(found(lint(kHead + tuned + family + kLaunch), "unused-parameter", "'ROWS'"), "nothing");
  const std::string read =
      "[param.TILE]\nkind = \"int\"\nvalues = [8, 16]\ndefault = \"ROWS\"\ndoc = \"d\"\n";
  EXPECT_EQ(found(lint(kHead + read + family + "[launch]\ngrid = [\"TILE\"]\nblock = [32]\n"),
                  "unused-parameter", "'ROWS'"),
            "nothing");
}

}  // namespace
}  // namespace kiln::cli

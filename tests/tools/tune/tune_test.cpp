// kiln tune: the candidates that it tries and refuses, the choice that it
// stores, and the commands that use the choice.
#include "tools/tune/fixture.hpp"

namespace kiln::test {
namespace {

TEST_F(Tune, TheFastestCandidateWinsAndIsTaken) {
  EXPECT_EQ(threads({"N=3"}), "128") << "without a choice the default";
  const Finished r = tune({"N=3"}, gpu("32=9,64=5,128=10,256=12"));
  ASSERT_EQ(r.status, 0) << r.err;
  const auto result = r.json()["results"][0];
  EXPECT_EQ(result["chosen"]["THREADS"], "64");
  EXPECT_EQ(result["params"], (nlohmann::json{{"N", "3"}}));
  EXPECT_NEAR(result["ratio"].get<double>(), 0.5, 1e-6);
  EXPECT_EQ(result["candidates"].size(), 4u);
  EXPECT_EQ(result["candidates"][0]["params"]["THREADS"], "128") << "the default comes first";
  EXPECT_NEAR(result["candidates"][3]["us"][0].get<double>(), 12, 1e-6);
  EXPECT_EQ(result["checked"], true);
  EXPECT_EQ(result["device"], kGpu);
  EXPECT_EQ(threads({"N=3"}), "64");
  EXPECT_EQ(threads({"N=4"}), "128") << "a choice is for one call";
  EXPECT_EQ(kiln({"compile", "tuned", "N=3", "--json"}, gpu()).json()["tuned"]["THREADS"], "64");
  EXPECT_EQ(kiln({"run", "tuned", "N=3", "--json"}, gpu()).json()["tuned"]["THREADS"], "64");
}

TEST_F(Tune, TheDefaultStaysWhereNothingBeatsIt) {
  const Finished r = tune({"N=3"}, gpu("32=9.95,64=10,128=10,256=12"));
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.json()["results"][0]["chosen"]["THREADS"], "128") << "half a percent is noise";
  EXPECT_EQ(choices().size(), 1u) << "that it stays is a choice, too";
  EXPECT_EQ(threads({"N=3"}), "128");
}

TEST_F(Tune, TheScoreIsOverAllSizes) {
  const Finished r = tune({"N=3", "n=50,100"}, gpu("64=5"));
  ASSERT_EQ(r.status, 0) << r.err;
  const auto result = r.json()["results"][0];
  EXPECT_EQ(result["sizes"], (nlohmann::json{"n=50", "n=100"}));
  EXPECT_EQ(result["candidates"][2]["us"].size(), 2u);
  EXPECT_EQ(choices()[0]["timings"].size(), 2u);
  EXPECT_EQ(choices()[0]["timings"][1]["arguments"], "n=100");
}

TEST_F(Tune, OtherBitsAreRefusedUnlessTheManifestAllowsThem) {
  const Environment other = gpu("64=5", {{"TUNE_OTHER_BITS", "64"}});
  const Finished r = tune({"N=3"}, other);
  EXPECT_EQ(r.status, 1);
  for (const char* text :
       {"'tuned'", "THREADS=64", "'out'", "different bits than with the default", "tune_changes_bits"})
    EXPECT_NE(r.err.find(text), std::string::npos) << text << " in: " << r.err;
  EXPECT_EQ(r.json()["error"]["code"], "wrong_candidate");
  EXPECT_EQ(choices().size(), 0u);
  describe("tune_changes_bits = true");
  const Finished allowed = tune({"N=3"}, other);
  ASSERT_EQ(allowed.status, 0) << allowed.err;
  const auto result = allowed.json()["results"][0];
  EXPECT_EQ(result["chosen"]["THREADS"], "64");
  EXPECT_EQ(result["candidates"][2]["bits_equal"], false);
  EXPECT_EQ(result["candidates"][1]["bits_equal"], true);
}

TEST_F(Tune, AWrongCandidateIsRefusedWhateverTheManifestSays) {
  describe("tune_changes_bits = true");
  const Finished r = tune({"N=3"}, gpu("64=5", {{"TUNE_WRONG", "64"}}));
  EXPECT_EQ(r.status, 1);
  for (const char* text : {"THREADS=64", "'out'", "is wrong: relative RMS"})
    EXPECT_NE(r.err.find(text), std::string::npos) << text << " in: " << r.err;
  EXPECT_EQ(choices().size(), 0u);
}

TEST_F(Tune, AKernelWithoutSteadyBitsIsSaidToBeOne) {
  const Finished r = tune({"N=3"}, gpu("64=5", {{"TUNE_UNSTEADY", "1"}}));
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.err.find("in two launches of the default"), std::string::npos) << r.err;
}

TEST_F(Tune, WhatDoesNotTakeTheCallIsLeftOut) {
  describe("", "[32, 64, 256]", "128", "n < 1000 || THREADS != 32");
  const Finished r = tune({"N=7"}, gpu("32=1,64=1,256=9"));  // n is 100, which the rule allows
  ASSERT_EQ(r.status, 0) << r.err;
  const auto result = r.json()["results"][0];
  ASSERT_EQ(result["refused"].size(), 2u);
  EXPECT_EQ(result["refused"][0]["candidate"], "THREADS=32");
  for (const char* text : {"stricter than the default", "n < 1000 || THREADS != 32"})
    EXPECT_NE(result["refused"][0]["why"].get<std::string>().find(text), std::string::npos) << result;
  EXPECT_EQ(result["refused"][1]["candidate"], "THREADS=64");
  EXPECT_NE(result["refused"][1]["why"].get<std::string>().find("no 64 for 7"), std::string::npos);
  EXPECT_EQ(result["candidates"].size(), 2u);
  EXPECT_EQ(result["chosen"]["THREADS"], "256");
}

/// `manifest` without its [reference].
std::string without_reference(std::string manifest) {
  const auto at = manifest.find("[reference]");
  return manifest.erase(at, manifest.find("[[prewarm]]") - at);
}

TEST_F(Tune, ACandidateThatWritesOutsideIsRefusedAlsoWithoutAReference) {
  const Environment outside = gpu("256=5", {{"TUNE_OUTSIDE", "256"}});
  for (const bool checked : {true, false}) {
    if (!checked)
      write("templates/tuned.toml", without_reference(base::read_file(path("templates/tuned.toml"))->bytes));
    const Finished r = tune({"N=3"}, outside);
    EXPECT_EQ(r.status, 1) << checked;
    for (const char* text : {"THREADS=256", "'out'", "writes outside of its bounds"})
      EXPECT_NE(r.err.find(text), std::string::npos) << text << " in: " << r.err;
    EXPECT_EQ(choices().size(), 0u);
  }
}

TEST_F(Tune, NumbersThatAreNoneAreSaidToBe) {
  const Finished r = tune({"N=3"}, gpu("256=5", {{"TUNE_NAN", "256"}}));
  EXPECT_EQ(r.status, 1);
  for (const char* text : {"THREADS=256", "'out'", "in 1 elements", "is a finite number"})
    EXPECT_NE(r.err.find(text), std::string::npos) << text << " in: " << r.err;
}

TEST_F(Tune, TimesThatAreNoneStoreNothing) {
  for (const char* us : {"64=0", "64=-5", "64=nan", "64=inf", "128=0"}) {
    const Finished r = tune({"N=3"}, gpu(us));
    EXPECT_EQ(r.status, 1) << us;
    EXPECT_NE(r.err.find("by which no candidate can be chosen"), std::string::npos) << us << ": " << r.err;
    EXPECT_EQ(choices().size(), 0u) << us;
  }
}

TEST_F(Tune, WhatIsStoredIsToldWhenALaterCallFails) {
  // The default, 64, is refused for N = 7.
  describe("", "[32, 64, 256]", "64");
  const Finished r = tune({"N=3,7,4"}, gpu("256=5"));
  EXPECT_EQ(r.status, 2) << r.err;
  ASSERT_EQ(r.json()["results"].size(), 1u) << r.out;
  EXPECT_EQ(r.json()["results"][0]["params"]["N"], "3");
  EXPECT_EQ(r.json()["error"]["code"], "requirement");
  EXPECT_EQ(choices().size(), 1u);
}

TEST_F(Tune, AGivenParameterBeatsTheChoice) {
  ASSERT_EQ(tune({"N=3"}).status, 0);
  EXPECT_EQ(threads({"N=3", "THREADS=256"}), "256");
  EXPECT_EQ(threads({"N=3", "THREADS=128"}), "128") << "the default, said";
}

TEST_F(Tune, EveryPrewarmRowIsTunedOnce) {
  const Finished r = tune({"--all-prewarm"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.json()["results"].size(), 2u) << "N = 5 leaves nothing open";
  EXPECT_EQ(choices().size(), 2u);
  EXPECT_EQ(tune({"--all-prewarm", "N=3"}).status, 2);
  EXPECT_EQ(tune({"N=3,4,6"}).json()["results"].size(), 3u);
}

TEST_F(Tune, TuningAgainReplacesTheChoice) {
  ASSERT_EQ(tune({"N=3"}).status, 0);
  EXPECT_EQ(threads({"N=3"}), "64");
  ASSERT_EQ(tune({"N=3"}, gpu("256=5")).status, 0);
  EXPECT_EQ(choices().size(), 1u);
  EXPECT_EQ(threads({"N=3"}), "256");
}

TEST_F(Tune, ADryRunNeedsNoGpuAndStoresNothing) {
  const Finished r = tune({"N=7", "--dry-run"}, no_gpu());
  ASSERT_EQ(r.status, 0) << r.err;
  const auto result = r.json()["results"][0];
  EXPECT_EQ(result["candidates"].size(), 3u);
  EXPECT_TRUE(result["chosen"].is_null());
  EXPECT_EQ(choices().size(), 0u);
  EXPECT_EQ(kiln({"ls", "--json"}).json()["count"], 0) << "nothing was compiled";
}

TEST_F(Tune, TheTableIsReadable) {
  const Finished r = kiln({"tune", "tuned", "N=3"}, gpu("64=5"));
  ASSERT_EQ(r.status, 0) << r.err;
  for (const char* text : {"CANDIDATE", "RATIO", "THREADS=64", "0.500", "same", "ok", "chosen",
                           "50.0 % less time than the default"})
    EXPECT_NE(r.out.find(text), std::string::npos) << text << " in:\n" << r.out;
  const Finished listed = kiln({"tune", "--list"});
  for (const char* text : {"tuned", "N=3", "sm_90a", kGpu, "THREADS=64", "0.500"})
    EXPECT_NE(listed.out.find(text), std::string::npos) << text << " in:\n" << listed.out;
}

TEST_F(Tune, WhatCannotBeTunedIsAUsageError) {
  const auto refused = [&](const Arguments& words, const char* says, const Environment& where) {
    const Finished r = kiln(words, where);
    EXPECT_EQ(r.status, 2) << r.err;
    EXPECT_NE(r.err.find(says), std::string::npos) << r.err;
  };
  refused({"tune"}, "template is required", gpu());
  refused({"tune", "scale", "N=1", "--dry-run"}, "'scale' has nothing to tune", no_gpu());
  refused({"tune", "tuned", "N=3", "THREADS=64", "--dry-run"}, "nothing to tune with N=3 THREADS=64",
          no_gpu());
  refused({"tune", "tuned", "N=3", "rows=1"}, "no parameter or scalar argument 'rows'", gpu());
  refused({"tune", "tuned", "N="}, "'N=' has no value", gpu());
  refused({"tune", "--list", "tuned", "N=3"}, "--list takes a template's name and no values", no_gpu());
  refused({"tune", "tuned", "N=3", "--arch", "sm_80"}, "this GPU is sm_90a", gpu());
  const Finished r = kiln({"tune", "tuned", "N=3"}, no_gpu());
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.err.find("no CUDA driver"), std::string::npos) << r.err;
}

TEST_F(Tune, EachMemberOfAFamilyIsTunedInTheSizesThatItServes) {
  describe("");
  std::string manifest = base::read_file(path("templates/tuned.toml"))->bytes;
  manifest.replace(manifest.find("[[prewarm]]"), std::string::npos,
                   "[param.ROWS]\nkind = \"int\"\nvalues = [64, 256]\n"
                   "[family]\nby = \"n\"\nparameter = \"ROWS\"\n[[prewarm]]\nN = 3\nROWS = \"*\"\n");
  write("templates/tuned.toml", manifest);
  const Finished r = tune({"N=3", "n=50,100,300"});
  ASSERT_EQ(r.status, 0) << r.err;
  const auto results = r.json()["results"];
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0]["params"], (nlohmann::json{{"N", "3"}, {"ROWS", "64"}}));
  EXPECT_EQ(results[0]["sizes"], (nlohmann::json{"n=50"}));
  EXPECT_EQ(results[1]["params"], (nlohmann::json{{"N", "3"}, {"ROWS", "256"}}));
  EXPECT_EQ(results[1]["sizes"], (nlohmann::json{"n=100", "n=300"}));
  EXPECT_EQ(threads({"N=3", "ROWS=64"}), "64");
  EXPECT_EQ(choices().size(), 2u) << "one choice for each member";

  const auto planned = tune({"--all-prewarm", "n=300"}).json()["results"];
  ASSERT_EQ(planned.size(), 1u);
  EXPECT_EQ(planned[0]["params"]["ROWS"], "256");
  const auto given = tune({"N=3", "ROWS=256", "n=8"}).json()["results"];
  EXPECT_EQ(given[0]["sizes"], (nlohmann::json{"n=8"})) << "a member that is given is timed in every size";

  EXPECT_EQ(kiln({"run", "tuned", "N=3", "n=65", "--json"}, gpu()).json()["params"]["ROWS"], "256");
  EXPECT_EQ(kiln({"run", "tuned", "N=3", "n=65", "ROWS=64", "--json"}, gpu()).json()["params"]["ROWS"], "64");
  const Finished several = kiln({"run", "tuned", "N=3", "n=8,65"}, gpu());
  EXPECT_EQ(several.status, 0) << several.err;
  EXPECT_NE(several.out.find("ROWS=64"), std::string::npos) << several.out;
  EXPECT_NE(several.out.find("ROWS=256"), std::string::npos) << several.out;
  const auto members = kiln({"run", "tuned", "N=3", "n=8,65,9", "--json"}, gpu()).json()["members"];
  ASSERT_EQ(members.size(), 2u);
  EXPECT_EQ(members[0]["params"]["ROWS"], "64");
  EXPECT_EQ(members[0]["sizes"].size(), 2u) << "the sizes that it serves";
  EXPECT_EQ(members[1]["sizes"].size(), 1u);
}

}  // namespace
}  // namespace kiln::test

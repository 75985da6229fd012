// A choice on a machine other than its GPU's: by device name, in layers and
// bundles, and in every command that uses choices.
#include <filesystem>
#include <set>

#include "cache/store/store.hpp"
#include "tools/tune/fixture.hpp"

namespace kiln::test {
namespace {

TEST_F(Tune, AnotherDeviceHasNoChoice) {
  ASSERT_EQ(tune({"N=3"}).status, 0);
  EXPECT_EQ(threads({"N=3"}, gpu("", {{"KILN_FAKE_NAME", "Fake sm_90 of another size"}})), "128");
  EXPECT_EQ(threads({"N=3"}, no_gpu()), "128");
}

TEST_F(Tune, ADeviceNameResolvesWithoutAGpuWhatTheBoundProcessAsksFor) {
  ASSERT_EQ(tune({"N=3"}).status, 0);
  const auto compiled = kiln({"compile", "tuned", "N=3", "--device", kGpu, "--json"}, no_gpu()).json();
  EXPECT_EQ(compiled["params"]["THREADS"], "64");
  const auto run = kiln({"run", "tuned", "N=3", "--json"}, gpu()).json();
  EXPECT_EQ(run["key"], compiled["key"]);
  const auto why = kiln({"why", "tuned", "N=3", "--device", kGpu, "--json"}, no_gpu()).json();
  EXPECT_EQ(why["key"], compiled["key"]);
  EXPECT_EQ(why["tuned"]["THREADS"], "64");
  EXPECT_EQ(kiln({"why", "tuned", "N=3", "--json"}, no_gpu()).json()["params"]["THREADS"], "128");
}

TEST_F(Tune, PrewarmForADeviceMakesWhatThatDeviceRuns) {
  ASSERT_EQ(tune({"N=3"}).status, 0);
  const std::string layer = path("layer");
  const auto made = kiln({"prewarm", plan(), "-j2", "--template-path", path("templates"), "--device", kGpu,
                          "--layer", layer, "--json"},
                         no_gpu())
                        .json();
  bool tuned = false;
  for (const auto& entry : made["entries"]) {
    if (entry["template"] != "tuned" || entry["params"]["N"] != "3") continue;
    tuned = true;
    EXPECT_EQ(entry["params"]["THREADS"], "64");
    EXPECT_EQ(entry["tuned"]["THREADS"], "64");
  }
  EXPECT_TRUE(tuned) << made;
  // Another machine: the layer, an empty cache and the GPU.
  Environment elsewhere = gpu("", {{"KILN_CACHE_DIR", path("elsewhere")}, {"KILN_CACHE_LAYERS", layer}});
  const auto run = kiln({"run", "tuned", "N=3", "--json"}, elsewhere).json();
  EXPECT_EQ(run["params"]["THREADS"], "64");
  EXPECT_EQ(run["outcome"], "layer");
  EXPECT_EQ(run["tuned"]["THREADS"], "64");
  const auto listed = choices(elsewhere);
  ASSERT_EQ(listed.size(), 1u) << "the one that was used";
  EXPECT_EQ(listed[0]["directory"], layer);
  EXPECT_EQ(kiln({"prewarm", plan(), "--check", "--device", kGpu, "--layer", layer}, no_gpu()).status, 0);
  const Finished by_default = kiln({"prewarm", "--check", "--device", kGpu}, no_gpu());
  EXPECT_NE(by_default.out.find("missing  tuned N=4"), std::string::npos) << by_default.out;
  EXPECT_EQ(by_default.out.find("missing  tuned N=3"), std::string::npos) << "tune has made it";
}

TEST_F(Tune, ALayerMadeWithoutADeviceNameHasNoChoices) {
  ASSERT_EQ(tune({"N=3"}).status, 0);
  const auto made = kiln({"prewarm", plan(), "--layer", path("layer"), "--json"}, gpu()).json();
  for (const auto& entry : made["entries"]) EXPECT_FALSE(entry.contains("tuned")) << entry;
  EXPECT_EQ(choices({{"KILN_CACHE_DIR", path("none")}, {"KILN_CACHE_LAYERS", path("layer")}}).size(), 0u);
}

TEST_F(Tune, TheMachinesOwnChoiceBeatsTheLayers) {
  ASSERT_EQ(tune({"N=3"}).status, 0);
  ASSERT_EQ(kiln({"prewarm", plan(), "--device", kGpu, "--layer", path("layer")}, no_gpu()).status, 0);
  const Environment layered =
      gpu("256=5", {{"KILN_CACHE_LAYERS", path("layer")}, {"KILN_CACHE_DIR", path("own")}});
  EXPECT_EQ(threads({"N=3"}, layered), "64");
  ASSERT_EQ(tune({"N=3"}, layered).status, 0);
  EXPECT_EQ(threads({"N=3"}, layered), "256");
}

TEST_F(Tune, ARowThatNamesTheSameKernelBeforeDoesNotHideAChoice) {
  ASSERT_EQ(tune({"N=3"}).status, 0);
  write("plan.toml",
        "[[prewarm]]\ntemplate = \"tuned\"\nN = 3\nTHREADS = 64\n"
        "[[prewarm]]\ntemplate = \"tuned\"\nN = 3\n");
  const auto made =
      kiln({"prewarm", "plan.toml", "--device", kGpu, "--layer", path("layer"), "--json"}, no_gpu()).json();
  EXPECT_EQ(made["repeats"], 1);
  EXPECT_EQ(choices({{"KILN_CACHE_DIR", path("none")}, {"KILN_CACHE_LAYERS", path("layer")}}).size(), 1u);
}

TEST_F(Tune, ALayerFollowsWhatIsTunedAgain) {
  const Arguments fill{"prewarm", plan(), "--device", kGpu, "--layer", path("layer")};
  const Environment elsewhere =
      gpu("", {{"KILN_CACHE_DIR", path("elsewhere")}, {"KILN_CACHE_LAYERS", path("layer")}});
  ASSERT_EQ(tune({"N=3"}).status, 0);
  ASSERT_EQ(kiln(fill, no_gpu()).status, 0);
  EXPECT_EQ(threads({"N=3"}, elsewhere), "64");
  ASSERT_EQ(tune({"N=3"}, gpu("256=5")).status, 0);
  ASSERT_EQ(kiln(fill, no_gpu()).status, 0);
  EXPECT_EQ(threads({"N=3"}, elsewhere), "256");
}

/// The record of a process that was tuned to 64 threads and asked for N = 3.
constexpr const char* kRecord =
    "# kiln record 1\n[[prewarm]]\ntemplate = \"tuned\"\narch = \"sm_90a\"\nN = \"3\"\nTHREADS = "
    "\"64\"\ntuned = [\"THREADS\"]\n# end\n";

TEST_F(Tune, ARecordMakesALayerOfItsChoices) {
  write("record", kRecord);
  const std::string layer = path("layer");
  const Arguments fill{"prewarm", "record", "--device", kGpu, "--layer", layer};
  Arguments check = fill;
  check.push_back("--check");
  ASSERT_EQ(kiln(fill, no_gpu()).status, 0);
  EXPECT_EQ(kiln(check, no_gpu()).status, 0);
  const Environment elsewhere =
      gpu("", {{"KILN_CACHE_DIR", path("elsewhere")}, {"KILN_CACHE_LAYERS", layer}});
  const auto run = kiln({"run", "tuned", "N=3", "--json"}, elsewhere).json();
  EXPECT_EQ(run["params"]["THREADS"], "64");
  EXPECT_EQ(run["outcome"], "layer");
  const auto listed = choices(elsewhere);
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0]["params"]["N"], "3");
  // A later choice on this machine does not replace the recorded one.
  ASSERT_EQ(tune({"N=3"}, gpu("256=5")).status, 0);
  ASSERT_EQ(kiln(fill, no_gpu()).status, 0);
  EXPECT_EQ(threads({"N=3"}, elsewhere), "64");
  const Finished bare = kiln({"prewarm", "record", "--layer", path("bare")}, gpu());
  EXPECT_EQ(bare.status, 0);
  EXPECT_NE(bare.err.find("without --device"), std::string::npos) << bare.err;
}

TEST_F(Tune, ARecordFillsACacheThatWasNeverTuned) {
  write("record", kRecord);
  EXPECT_EQ(kiln({"prewarm", "record", "--check"}, gpu()).status, 3);
  ASSERT_EQ(kiln({"prewarm", "record"}, gpu()).status, 0);
  EXPECT_EQ(kiln({"prewarm", "record", "--check"}, gpu()).status, 0);
  EXPECT_EQ(threads({"N=3"}), "64") << "this GPU's";
  ASSERT_EQ(kiln({"bundle", "export", "a.kiln", "record"}, gpu()).status, 0);
  const Environment elsewhere = gpu("", {{"KILN_CACHE_DIR", path("elsewhere")}});
  ASSERT_EQ(kiln({"bundle", "import", "a.kiln"}, elsewhere).status, 0);
  EXPECT_EQ(threads({"N=3"}, elsewhere), "64");
}

TEST_F(Tune, ARecordLeavesWhatAMachineWasTunedToAndMakesThatToo) {
  write("record", kRecord);
  ASSERT_EQ(tune({"N=3"}, gpu("256=5")).status, 0);
  const auto made = kiln({"prewarm", "record", "--json"}, gpu()).json();
  std::set<std::string> threads_made;
  for (const auto& entry : made["entries"])
    threads_made.insert(entry["params"]["THREADS"].get<std::string>());
  EXPECT_EQ(threads_made, (std::set<std::string>{"64", "256"}));
  EXPECT_EQ(threads({"N=3"}), "256");
}

TEST_F(Tune, ADeviceThatNothingWasTunedForIsAUsageError) {
  ASSERT_EQ(tune({"N=3"}).status, 0);
  write("plan.toml", "[[prewarm]]\ntemplate = \"tuned\"\nN = 3\n");
  const Finished plan = kiln({"bundle", "export", "a.kiln", "plan.toml", "--device", "H300"}, no_gpu());
  EXPECT_EQ(plan.status, 2);
  EXPECT_NE(plan.err.find("--device 'H300': no specialisation of the plan was tuned"), std::string::npos)
      << plan.err;
  EXPECT_EQ(kiln({"bundle", "export", "a.kiln", "-t", "tuned", "--device", kGpu}, no_gpu()).status, 2);
}

TEST_F(Tune, BundlesCarryChoices) {
  ASSERT_EQ(tune({"N=3"}).status, 0);
  write("plan.toml", "[[prewarm]]\ntemplate = \"tuned\"\nN = 3\n");
  const Finished exported = kiln({"bundle", "export", "a.kiln", "plan.toml", "--device", kGpu}, no_gpu());
  ASSERT_EQ(exported.status, 0) << exported.err;
  EXPECT_EQ(kiln({"bundle", "verify", "a.kiln"}).status, 0);
  const Environment elsewhere = gpu("", {{"KILN_CACHE_DIR", path("elsewhere")}});
  const Finished imported = kiln({"bundle", "import", "a.kiln"}, elsewhere);
  ASSERT_EQ(imported.status, 0) << imported.err;
  EXPECT_EQ(kiln({"bundle", "diff", "a.kiln", "--store"}, {{"KILN_CACHE_DIR", path("elsewhere")}}).status, 0);
  EXPECT_EQ(threads({"N=3"}, elsewhere), "64");
  EXPECT_EQ(kiln({"run", "tuned", "N=3", "--json"}, elsewhere).json()["outcome"], "disk");
  // Equal entries give equal bytes, no matter when and where they were made.
  ASSERT_EQ(kiln({"bundle", "export", "b.kiln", "plan.toml", "--device", kGpu},
                 {{"KILN_CACHE_DIR", path("elsewhere")}, {"KILN_LIBCUDA", "/nonexistent"}})
                .status,
            0);
  EXPECT_EQ(base::read_file(path("a.kiln"))->bytes, base::read_file(path("b.kiln"))->bytes);
  // Exported by template: all of its choices, and none of another template's.
  ASSERT_EQ(kiln({"bundle", "export", "c.kiln", "-t", "tuned"}).status, 0);
  const Environment third{{"KILN_CACHE_DIR", path("third")}};
  ASSERT_EQ(kiln({"bundle", "import", "c.kiln"}, third).status, 0);
  EXPECT_EQ(choices(third).size(), 1u);
}

TEST_F(Tune, AnotherChoiceThatIsThereStaysAtAnImport) {
  ASSERT_EQ(tune({"N=3"}).status, 0);
  ASSERT_EQ(kiln({"bundle", "export", "a.kiln", "-t", "tuned"}).status, 0);
  const Environment elsewhere = gpu("256=5", {{"KILN_CACHE_DIR", path("elsewhere")}});
  ASSERT_EQ(tune({"N=3"}, elsewhere).status, 0);
  EXPECT_EQ(kiln({"bundle", "diff", "a.kiln", "--store"}, {{"KILN_CACHE_DIR", path("elsewhere")}}).status, 3);
  const Finished imported = kiln({"bundle", "import", "a.kiln", "--json"}, elsewhere);
  EXPECT_EQ(imported.status, 3);
  EXPECT_EQ(imported.json()["other_image"], 1);
  EXPECT_EQ(threads({"N=3"}, elsewhere), "256");
}

TEST_F(Tune, AnEditOfWhatItWasMadeOfClearsAChoice) {
  const auto tuned_again = [&](const char* what) {
    EXPECT_EQ(threads({"N=3"}), "128") << what << " changed";
    ASSERT_EQ(tune({"N=3"}).status, 0);
    EXPECT_EQ(threads({"N=3"}), "64");
  };
  tuned_again("nothing");
  write("templates/by.cuh", "#pragma once\n#define TIMES  *\n");
  tuned_again("a header");
  write("templates/tuned.cu", base::read_file(path("templates/tuned.cu"))->bytes + "// more\n");
  tuned_again("the source");
  describe("", "[64, 256]");
  tuned_again("the candidates");
  describe("", "[64, 256]", "512");
  EXPECT_EQ(threads({"N=3"}), "512") << "the default changed";
  EXPECT_EQ(choices().size(), 4u) << "they go when they were not used for longest";
}

TEST_F(Tune, AChoiceThatTheManifestNoLongerAllowsIsNotUsed) {
  ASSERT_EQ(tune({"N=3"}).status, 0);
  std::string text = base::read_file(path("templates/tuned.toml"))->bytes;
  text.replace(text.find("N != 7"), 6, "N != 3");
  write("templates/tuned.toml", text);
  const Finished r = kiln({"compile", "tuned", "N=3", "--json"}, gpu());
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.json()["params"]["THREADS"], "128");
  EXPECT_NE(r.err.find("is not used"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("no 64 for 7"), std::string::npos) << r.err;
}

TEST_F(Tune, EveryOtherCommandCopesWithChoices) {
  ASSERT_EQ(tune({"N=3"}).status, 0);
  const std::string key = choices()[0]["key"];
  const auto shown = kiln({"show", key.substr(0, 12), "--json"}).json();
  EXPECT_EQ(shown["choice"]["chosen"]["THREADS"], "64");
  EXPECT_NE(kiln({"show", key}).out.find("THREADS=64, of 4 candidates"), std::string::npos);
  EXPECT_EQ(kiln({"show", key, "--sass"}).status, 2);
  const auto listed = kiln({"ls", "--json"}).json();
  for (const auto& entry : listed["entries"]) EXPECT_NE(entry["key"], key);
  const auto stats = kiln({"stats", "--json"}).json();
  EXPECT_EQ(stats["choices"], 1);
  const std::string text = kiln({"stats"}).out;
  EXPECT_EQ(text.find("another version"), std::string::npos) << text;
  EXPECT_NE(text.find("1 choice of 'kiln tune'"), std::string::npos) << text;
  EXPECT_EQ(kiln({"report", "-"}).out.find("another version of kiln"), std::string::npos);
  EXPECT_EQ(kiln({"verify"}).status, 0);
  EXPECT_EQ(kiln({"audit", "--all", "-j1"}).status, 0);
  EXPECT_EQ(kiln({"gc"}).status, 0);
  EXPECT_EQ(choices().size(), 1u);
  EXPECT_EQ(threads({"N=3"}), "64");
  {  // a cache that has nothing else
    const auto never = base::Deadline::never();
    const Key id = *Key::from_hex(key);
    const auto record = cache::Store::open({.directory = cache()})->peek(id, never);
    ASSERT_TRUE(record);
    ASSERT_EQ(cache::Store::open({.directory = path("bare")})->put(*record).put, cache::Put::stored);
  }
  const Finished bare = kiln({"ls"}, {{"KILN_CACHE_DIR", path("bare")}});
  EXPECT_EQ(bare.status, 0);
  EXPECT_NE(bare.out.find("only 1 tuned choice"), std::string::npos) << bare.out;
  EXPECT_EQ(kiln({"clear", "--yes"}).status, 0);
  EXPECT_EQ(choices().size(), 0u);
}

}  // namespace
}  // namespace kiln::test

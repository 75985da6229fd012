// kiln bundle: the exported entries are imported byte for byte, in another place and by another user.
#include <filesystem>

#include "tests/support/other_user.hpp"
#include "tools/bundle/fixture.hpp"

using namespace kiln;
using namespace kiln::test;
using namespace kiln::testing;

namespace {

struct BundleCompiled : KilnCompiler {
  static constexpr int kScaleEntries = 3;
  void SetUp() override {
    KilnCompiler::SetUp();
    if (IsSkipped()) return;
    write("plan.toml", "[[prewarm]]\ntemplate = \"scale\"\nN = [1, 2, 3]\n");
    ASSERT_EQ(kiln({"prewarm", path("plan.toml")}).status, 0);
    const Finished done = kiln({"bundle", "export", path("a.kb"), path("plan.toml"), "--json"});
    ASSERT_EQ(done.status, 0) << done.err;
    ASSERT_EQ(done.json()["entries"], kScaleEntries);
  }
};

}  // namespace

TEST_F(BundleCompiled, IntoAnotherDirectoryNothingIsCompiledAgain) {
  const Environment other{{"KILN_CACHE_DIR", path("elsewhere/deep/cache")}};
  const auto imported = kiln({"bundle", "import", path("a.kb"), "--json"}, other).json();
  EXPECT_EQ(imported["stored"], kScaleEntries);
  const auto prewarmed = kiln({"prewarm", path("plan.toml"), "--json"}, other).json();
  EXPECT_EQ(prewarmed["compiled"], 0);
  EXPECT_EQ(prewarmed["from_disk"], kScaleEntries);
}

TEST_F(BundleCompiled, PtxIsAnEntryLikeAnyOther) {
  const auto made =
      kiln({"compile", "scale", "N=4", "--arch", "compute_80", "-o", path("scale.ptx"), "--json"}).json();
  EXPECT_EQ(made["arch"], "compute_80");
  EXPECT_NE(base::read_file(path("scale.ptx"))->bytes.find(".target sm_80"), std::string::npos);
  const std::string key = made["key"];
  const Finished sass = kiln({"show", key, "--sass"});
  EXPECT_EQ(sass.status, 2);
  EXPECT_NE(sass.err.find("PTX"), std::string::npos) << sass.err;
  ASSERT_EQ(kiln({"bundle", "export", path("ptx.kb"), "--arch", "compute_80", "--json"}).json()["entries"],
            1);
  const Environment other{{"KILN_CACHE_DIR", path("elsewhere")}};
  const Finished imported = kiln({"bundle", "import", path("ptx.kb"), "--json"}, other);
  EXPECT_EQ(imported.json()["stored"], 1) << imported.out << imported.err;
  EXPECT_EQ(kiln({"compile", "scale", "N=4", "--arch", "compute_80", "--json"}, other).json()["outcome"],
            "disk");
}

TEST_F(BundleCompiled, ALayerServesItToEverybody) {
  const Finished imported = kiln({"bundle", "import", path("a.kb"), "--layer", path("layer"), "--json"});
  ASSERT_EQ(imported.status, 0) << imported.err;
  EXPECT_EQ(imported.json()["layer"], true);
  EXPECT_EQ(mode_of(path("layer")), "0755");
  EXPECT_EQ(mode_of(path("layer/v1/data.mdb")), "0644");
  const Environment other{{"KILN_CACHE_DIR", path("empty")}, {"KILN_CACHE_LAYERS", path("layer")}};
  const auto prewarmed = kiln({"prewarm", path("plan.toml"), "--json"}, other).json();
  EXPECT_EQ(prewarmed["compiled"], 0);
  for (const auto& entry : prewarmed["entries"]) EXPECT_EQ(entry["outcome"], "layer");
}

TEST_F(BundleCompiled, AnotherUserElsewhereLaterExportsTheSameBytes) {
  KILN_NEEDS_ROOT();
  namespace fs = std::filesystem;
  ASSERT_EQ(::chmod(path("").c_str(), 0711), 0);
  const std::string theirs = path("theirs");
  make(theirs, 0700, kUser);
  fs::copy(path("templates"), theirs + "/their templates", fs::copy_options::recursive);
  fs::copy(path("plan.toml"), theirs + "/plan.toml");
  for (const auto& file : fs::recursive_directory_iterator(theirs)) fs::permissions(file, fs::perms(0755));
  ASSERT_EQ(::chmod(path("a.kb").c_str(), 0644), 0);
  const std::string said = as_user(kUser, [&]() -> std::string {
    Environment env = environment();
    env["HOME"] = env["TMPDIR"] = theirs;
    env["KILN_CACHE_DIR"] = theirs + "/made";
    env["KILN_TEMPLATE_PATH"] = theirs + "/their templates";
    const auto kiln_as_them = [&](const Arguments& arguments) {
      return Running(theirs, arguments, env).wait();
    };
    if (const Finished done = kiln_as_them({"prewarm", theirs + "/plan.toml"}); done.status != 0)
      return "prewarm: " + done.err;
    if (const Finished done = kiln_as_them({"bundle", "export", theirs + "/b.kb", "--all"}); done.status != 0)
      return "export: " + done.err;
    env["KILN_CACHE_DIR"] = theirs + "/imported";
    if (const Finished done = kiln_as_them({"bundle", "import", path("a.kb")}); done.status != 0)
      return "import: " + done.err;
    const auto prewarmed = kiln_as_them({"prewarm", theirs + "/plan.toml", "--json"}).json();
    return std::to_string(prewarmed["compiled"].get<int>()) + " compiled, " +
           std::to_string(prewarmed["from_disk"].get<int>()) + " from disk";
  });
  EXPECT_EQ(said, "0 compiled, 3 from disk");
  EXPECT_EQ(base::read_file(theirs + "/b.kb")->bytes, base::read_file(path("a.kb"))->bytes);
}

TEST_F(BundleCompiled, APlanThatIsNotCoveredWritesNothingAndNamesWhatIsMissing) {
  write("more.toml", "[[prewarm]]\ntemplate = \"scale\"\nN = [3, 4]\n");
  const Finished refused = kiln({"bundle", "export", path("more.kb"), path("more.toml"), "--json"});
  EXPECT_EQ(refused.status, 3);
  EXPECT_EQ(refused.json()["written"], false);
  ASSERT_EQ(refused.json()["missing"].size(), 1u);
  EXPECT_NE(refused.err.find("scale N=4"), std::string::npos) << refused.err;
  EXPECT_NE(::access(path("more.kb").c_str(), F_OK), 0);
  const Finished partly =
      kiln({"bundle", "export", path("more.kb"), path("more.toml"), "--keep-going", "--json"});
  EXPECT_EQ(partly.status, 3);
  EXPECT_EQ(partly.json()["entries"], 1);
}

TEST_F(BundleCommand, TimesAreLeftOutAndComeBackAsThatOfTheImport) {
  put(0, 5);
  const auto other = open(path("other"));
  for (std::uint32_t number = 0; number < 5; ++number) {
    Made later(number);
    later.facts.created_s += 1000, later.facts.ptxas_ms = 77, later.facts.compile_ms = 1;
    later.facts.log = "a remark\nanother";
    ASSERT_EQ(other->put(later.record()).put, cache::Put::stored);
  }
  ASSERT_EQ(kiln({"bundle", "export", path("a.kb"), "--all"}).status, 0);
  ASSERT_EQ(kiln({"bundle", "export", path("b.kb"), "--all", "--cache-dir", path("other")}).status, 0);
  EXPECT_EQ(bytes_of("a.kb"), bytes_of("b.kb"));
  const auto before = std::time(nullptr);
  ASSERT_EQ(import(path("a.kb"), path("third")).json()["stored"], 5);
  const auto record = open(path("third"))->peek(Made(3).key(), cache::test::soon());
  ASSERT_TRUE(record);
  const compile::Facts facts = compile::decode_facts(record->facts);
  EXPECT_GE(facts.created_s, before);
  EXPECT_EQ(facts.compile_ms, 0);
  EXPECT_EQ(facts.log, "a remark\nanother");
  EXPECT_EQ(record->image, Made(3).image);
}

TEST_F(BundleCommand, AnImportIntoALayerSaysHowToServeFromIt) {
  put(0, 2);
  ASSERT_EQ(kiln({"bundle", "export", path("a.kb"), "--all"}).status, 0);
  const Finished done = kiln({"bundle", "import", path("a.kb"), "--layer", "layer"});  // below path("")
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_NE(done.out.find("KILN_CACHE_LAYERS=" + path("layer") + '\n'), std::string::npos) << done.out;
  EXPECT_EQ(kiln({"bundle", "import", path("a.kb")}).out.find("KILN_CACHE_LAYERS"), std::string::npos);
}

TEST_F(BundleCommand, ImportingAgainStoresNothing) {
  put(0, 20);
  ASSERT_EQ(kiln({"bundle", "export", path("a.kb"), "--all"}).status, 0);
  const auto first = import(path("a.kb"), path("other")).json(),
             second = import(path("a.kb"), path("other")).json();
  EXPECT_EQ(first["stored"], 20);
  EXPECT_EQ(first["present"], 0);
  EXPECT_EQ(second["stored"], 0);
  EXPECT_EQ(second["present"], 20);
}

TEST_F(BundleCommand, ChoosesByTemplateAndArch) {
  const auto store = open();
  for (const Made& made : {Made(1), Made(2, "other"), Made(3, "other@reference"), Made(4, "other", "sm_80")})
    ASSERT_EQ(store->put(made.record()).put, cache::Put::stored);
  const auto count = [&](Arguments more) {
    Arguments arguments{"bundle", "export", path("x.kb"), "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return kiln(arguments).json()["entries"].get<int>();
  };
  EXPECT_EQ(count({"-t", "other"}), 3);
  EXPECT_EQ(count({"-t", "other", "-t", "tool"}), 4);
  EXPECT_EQ(count({"--arch", "sm_80"}), 1);
  EXPECT_EQ(count({"--arch", "80,90", "-t", "other"}), 3);
  const Finished none = kiln({"bundle", "export", path("none.kb"), "-t", "absent", "--json"});
  EXPECT_EQ(none.status, 3);
  EXPECT_FALSE(exists(path("none.kb")));
  const Finished misspelt = kiln({"bundle", "export", path("none.kb"), "-t", "rms_nrm"});
  EXPECT_EQ(misspelt.status, 3);
  EXPECT_NE(misspelt.err.find("did you mean 'rms_norm'?"), std::string::npos) << misspelt.err;
  EXPECT_EQ(kiln({"bundle", "export", path("x.kb")}).status, 2);
  EXPECT_EQ(kiln({"bundle", "export", path("x.kb"), "--all", "-t", "other"}).status, 2);
}

TEST_F(BundleCommand, DiffTellsRecordsOfTwoToolchainsApart) {
  Made one(1), other(1);
  other.nvrtc = "another";
  write_bundle("a.kb", {one.record()});
  write_bundle("b.kb", {other.record()});
  const Finished r = kiln({"bundle", "diff", path("a.kb"), path("b.kb")});
  EXPECT_EQ(r.status, 3) << r.err;
  for (const Made* made : {&one, &other}) {
    const std::string key = made->key().hex();
    EXPECT_NE(r.out.find(key.substr(0, 12) + '-' + key.substr(32, 4)), std::string::npos) << r.out;
  }
}

TEST_F(BundleCommand, EntriesOfLayersAreExportedOnce) {
  put(0, 4);
  put(2, 6, path("layer"));
  const Environment layers{{"KILN_CACHE_LAYERS", path("layer")}};
  EXPECT_EQ(kiln({"bundle", "export", path("a.kb"), "--all", "--json"}, layers).json()["entries"], 6);
}

TEST_F(BundleCommand, AnEmptyCacheIsAnEmptyBundle) {
  EXPECT_EQ(kiln({"bundle", "export", path("a.kb"), "--all", "--json"}).json()["entries"], 0);
  EXPECT_FALSE(exists(cache())) << "an export creates nothing";
  EXPECT_EQ(import(path("a.kb"), path("other")).status, 0);
}

TEST_F(BundleCommand, ADamagedEntryIsLeftOutAndNamed) {
  put(0, 3);
  const auto store = open();
  cache::Record big = Made(7).record();
  big.image += std::string(100'000, 'z');  // bytes after the sections; it is still a cubin
  ASSERT_EQ(store->put(big).put, cache::Put::stored);
  std::string bytes = contents();
  const auto at = bytes.find(std::string(3000, 'z'));
  ASSERT_NE(at, std::string::npos);
  bytes[at + 10] = 'y';
  overwrite(bytes);
  const Finished done = kiln({"bundle", "export", path("a.kb"), "--all", "--json"});
  EXPECT_EQ(done.status, 4);
  EXPECT_EQ(done.json()["entries"], 3);
  ASSERT_EQ(done.json()["damaged"].size(), 1u);
  EXPECT_EQ(done.json()["damaged"][0], Made(7).key().hex());
  EXPECT_EQ(kiln({"bundle", "verify", path("a.kb")}).status, 0);
}

TEST_F(BundleCommand, AnEntryThatIsThereWithAnotherImageStaysAndIsSaid) {
  cache::Record poisoned = Made(2).record();
  poisoned.image += "x";
  write_bundle("before.kb", {Made(1).record(), poisoned});
  write_bundle("a.kb", {Made(1).record(), Made(2).record(), Made(3).record()});
  ASSERT_EQ(import(path("before.kb"), path("other")).status, 0);
  const Finished done = import(path("a.kb"), path("other"));
  EXPECT_EQ(done.status, 3);
  EXPECT_EQ(done.json()["present"], 2);
  EXPECT_EQ(done.json()["other_image"], 1);
  EXPECT_NE(done.err.find("another image"), std::string::npos) << done.err;
  EXPECT_EQ(import(path("before.kb"), path("other")).status, 0);
}

TEST_F(BundleCommand, DiffNamesWhatIsNotShared) {
  Made changed(2);
  changed.facts.log = "another remark";
  write_bundle("a.kb", {Made(1).record(), Made(2).record(), Made(3).record()});
  write_bundle("b.kb", {changed.record(), Made(3).record(), Made(4).record()});
  EXPECT_EQ(kiln({"bundle", "diff", path("a.kb"), path("a.kb")}).status, 0);
  const Finished done = kiln({"bundle", "diff", path("a.kb"), path("b.kb"), "--json"});
  EXPECT_EQ(done.status, 3);
  const auto json = done.json();
  EXPECT_EQ(json["same"], 1);
  ASSERT_EQ(json["only_a"].size(), 1u);
  EXPECT_EQ(json["only_a"][0]["key"], Made(1).key().hex());
  EXPECT_EQ(json["only_b"][0]["key"], Made(4).key().hex());
  EXPECT_EQ(json["other_bytes"][0]["differs"], nlohmann::json::array({"facts"}));
  put(1, 4);
  EXPECT_EQ(kiln({"bundle", "diff", path("a.kb"), "--store"}).status, 0);
  EXPECT_EQ(kiln({"bundle", "diff", path("b.kb"), "--store"}).status, 3);
  EXPECT_EQ(kiln({"bundle", "diff", path("a.kb")}).status, 2);
}

TEST_F(BundleCommand, StreamsToStdout) {
  put(0, 3);
  ASSERT_EQ(kiln({"bundle", "export", path("a.kb"), "--all"}).status, 0);
  EXPECT_EQ(kiln({"bundle", "export", "-", "--all"}).out, bytes_of("a.kb"));
  EXPECT_EQ(kiln({"bundle", "export", "-", "--all", "--json"}).status, 2);
  EXPECT_EQ(kiln({"bundle", "export", "/dev/null", "--all"}).status, 0);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(BundleCommand, ASubcommandIsRequired) {
  EXPECT_EQ(kiln({"bundle"}).status, 2);
  EXPECT_EQ(kiln({"bundle", "exprot"}).status, 2);
}

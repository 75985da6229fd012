// [limits], ptxas' performance warnings, and --strict.
#include <filesystem>

#include "support/places.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

class Strict : public KilnCompiler {
 protected:
  void SetUp() override {
    KilnCompiler::SetUp();
    if (IsSkipped()) return;
    std::filesystem::copy(std::string(places::kSourceDirectory) + "/tests/fixtures/limits", path("templates"),
                          std::filesystem::copy_options::recursive);
  }
  void allow(const std::string& limits) const {
    std::string manifest = base::read_file(path("templates/slow.toml"))->bytes;
    manifest.resize(manifest.find("[limits]"));
    write("templates/slow.toml", manifest + limits);
  }
};

bool said(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(Strict, CompileAndShowNameWhatPtxasWarnsOf) {
  const auto json = kiln({"compile", "slow", "SERIAL=true", "IGNORED=true", "--json"}).json();
  const auto warnings = json["performance_warnings"].dump();
  EXPECT_EQ(json["performance_warnings"].size(), 2u) << warnings;
  EXPECT_TRUE(said(warnings, "(C7508)")) << warnings;
  EXPECT_TRUE(said(warnings, "(C7520)")) << warnings;
  ASSERT_EQ(json["limits_broken"].size(), 1u);
  EXPECT_EQ(json["limits_broken"][0]["name"], "performance_warnings");
  EXPECT_EQ(json["limits_broken"][0]["measured"], 2);
  EXPECT_EQ(json["limits_broken"][0]["allowed"], 1);
  const std::string key = json["key"];
  const auto shown = kiln({"show", key, "--json"}).json();
  EXPECT_EQ(shown["performance_warnings"], json["performance_warnings"]);
  EXPECT_EQ(shown["limits_broken"], json["limits_broken"]);
  for (const Arguments& words :
       {Arguments{"show", key}, Arguments{"compile", "slow", "SERIAL=true", "IGNORED=true"}}) {
    const Finished r = kiln(words);
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_TRUE(said(r.out, "C7508")) << r.out;
    EXPECT_TRUE(said(r.out, "over limit")) << r.out;
  }
}

TEST_F(Strict, WithoutItABrokenLimitIsAWarningOfTheCompileAlone) {
  const Finished first = kiln({"compile", "slow", "SERIAL=true", "IGNORED=true"});
  EXPECT_EQ(first.status, 0);
  EXPECT_TRUE(said(first.err,
                   "warning: slow SERIAL=true IGNORED=true for sm_90a breaks its manifest's limits: 2 "
                   "performance warnings"))
      << first.err;
  const Finished hit = kiln({"compile", "slow", "SERIAL=true", "IGNORED=true"});
  EXPECT_EQ(hit.status, 0);
  EXPECT_EQ(hit.err, "");
}

TEST_F(Strict, CompileFailsOnHitsTooAndWhatWasMadeIsCached) {
  for (const char* outcome : {"compiled", "disk"}) {
    const Finished r = kiln({"compile", "slow", "SERIAL=true", "IGNORED=true", "--strict", "--json"});
    EXPECT_EQ(r.status, 1) << r.out;
    const auto json = r.json();
    EXPECT_EQ(json["outcome"], outcome);
    EXPECT_EQ(json["error"]["code"], "limits_broken");
    EXPECT_TRUE(said(r.err, "kiln: error: slow SERIAL=true IGNORED=true for sm_90a breaks")) << r.err;
    EXPECT_TRUE(said(r.err, "(C7520)")) << r.err;
  }
}

TEST_F(Strict, AllowsWhatTheManifestAllows) {
  EXPECT_EQ(kiln({"compile", "slow", "SERIAL=true", "--strict"}).status, 0) << "one warning is allowed";
  EXPECT_EQ(kiln({"compile", "slow", "--strict"}).status, 0) << "there is none";
}

TEST_F(Strict, AllowsNoPerformanceWarningWhereTheManifestIsSilent) {
  allow("");
  const Finished plain = kiln({"compile", "slow", "SERIAL=true", "--json"});
  EXPECT_EQ(plain.status, 0);
  EXPECT_TRUE(plain.json()["limits_broken"].empty());
  const Finished strict = kiln({"compile", "slow", "SERIAL=true", "--strict", "--json"});
  EXPECT_EQ(strict.status, 1);
  EXPECT_EQ(strict.json()["limits_broken"][0]["allowed"], 0);
}

TEST_F(Strict, EveryLimitCounts) {
  allow("[limits]\ncompile_seconds = 0\n");
  const Finished r = kiln({"compile", "slow", "--strict", "--json"});
  EXPECT_EQ(r.status, 1);
  EXPECT_EQ(r.json()["limits_broken"][0]["name"], "compile_seconds");
  EXPECT_GT(r.json()["limits_broken"][0]["measured"].get<double>(), 0);
}

TEST_F(Strict, PrewarmCountsItAsFailed) {
  write("plan.toml",
        "[[prewarm]]\ntemplate = \"slow\"\narch = \"sm_90a\"\nSERIAL = [false, true]\nIGNORED = true\n");
  const Finished plain = kiln({"prewarm", path("plan.toml"), "--json"});
  EXPECT_EQ(plain.status, 0) << plain.err;
  EXPECT_EQ(plain.json()["entries"][1]["limits_broken"].size(), 1u);
  EXPECT_TRUE(plain.json()["entries"][0]["limits_broken"].empty());
  const Finished strict = kiln({"prewarm", path("plan.toml"), "--strict", "--keep-going", "--json"});
  EXPECT_EQ(strict.status, 3) << "hits are looked at, too";
  const auto json = strict.json();
  EXPECT_EQ(json["failed"], 1);
  EXPECT_EQ(json["from_disk"], 1);
  EXPECT_EQ(json["entries"][1]["outcome"], "failed");
  EXPECT_EQ(json["entries"][1]["error"]["code"], "limits_broken");
  EXPECT_EQ(json["entries"][1]["limits_broken"], plain.json()["entries"][1]["limits_broken"]);
  const Finished human = kiln({"prewarm", path("plan.toml"), "--strict"});
  EXPECT_EQ(human.status, 1);
  EXPECT_TRUE(said(human.out, "2 performance warnings of ptxas")) << human.out;
}

TEST_F(Strict, ACheckHasNothingToBeStrictAbout) {
  EXPECT_EQ(kiln({"prewarm", "--check", "--strict"}).status, 2);
}

TEST_F(Strict, ShowKnowsNoLimitsOfATemplateThatIsGone) {
  const std::string key = kiln({"compile", "slow", "SERIAL=true", "--json"}).json()["key"];
  std::filesystem::remove(path("templates/slow.toml"));
  const auto json = kiln({"show", key, "--json"}).json();
  EXPECT_TRUE(json["limits_broken"].is_null());
  EXPECT_EQ(json["performance_warnings"].size(), 1u);
}

}  // namespace
}  // namespace kiln::test

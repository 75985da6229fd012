// kiln stats: counters over the store's life, and since a mark.
#include <sched.h>
#include <sys/mount.h>

#include "cache/store/tally.hpp"
#include "support/time_limit.hpp"
#include "tests/support/other_user.hpp"
#include "tools/store_command.hpp"

namespace kiln::test {
namespace {

/// Indices of the tally's counters, as numbered in runtime/state/lifetime.cpp.
constexpr std::size_t kDisk = 2, kCompiles = 10, kWaits = 14, kSaved = 30;

class Marks : public StoreCommand {
 protected:
  void SetUp() override {
    ASSERT_EQ(::mkdir(cache().c_str(), 0700), 0);
    fill(1);
  }
  std::string tally() const { return cache() + "/v1/counters"; }
  void count(std::size_t index, std::uint64_t by) const {
    std::array<std::uint64_t, cache::kTallyValues> deltas{};
    deltas[index] = by;
    ASSERT_TRUE(cache::Tally(cache() + "/v1").add(deltas));
  }
  nlohmann::json since(const std::string& name) {
    const Finished r = kiln({"stats", "--since", name, "--json"});
    EXPECT_EQ(r.status, 0) << r.err;
    return r.json()["since"];
  }
};

TEST_F(Marks, SinceShowsWhatWasCountedMeanwhile) {
  count(kDisk, 5);
  const Finished marked = kiln({"stats", "--mark", "before"});
  EXPECT_EQ(marked.status, 0) << marked.err;
  EXPECT_NE(marked.out.find("kiln stats --since before"), std::string::npos) << marked.out;
  EXPECT_EQ(kiln::testing::mode_of(cache() + "/v1/marks"), "0700");
  EXPECT_EQ(kiln::testing::mode_of(cache() + "/v1/marks/before"), "0600");
  count(kDisk, 3);
  count(kSaved, 1'500'000);
  const auto json = since("before");
  EXPECT_EQ(json["mark"], "before");
  EXPECT_EQ(json["hits"]["disk"], 3);
  EXPECT_EQ(json["compiles"], 0);
  EXPECT_EQ(json["compile_saved_ms"], 1500);
  EXPECT_EQ(json["reset"], false);
  EXPECT_LT(json["seconds"], at_most(60));
  EXPECT_EQ(kiln({"stats", "--json"}).json()["lifetime"]["hits"]["disk"], 8);
  const std::string text = kiln({"stats", "--since", "before"}).out;
  EXPECT_NE(text.find("Since the mark 'before', "), std::string::npos) << text;
  EXPECT_NE(text.find("3 disk"), std::string::npos) << text;
  EXPECT_NE(text.find("1.5 s of compile time"), std::string::npos) << text;
}

TEST_F(Marks, WithoutANameItIsTheLastOne) {
  count(kDisk, 5);
  const Finished marked = kiln({"stats", "--mark", "--json"});
  EXPECT_EQ(marked.json()["marked"]["mark"], "last");
  EXPECT_EQ(marked.json()["schema"], "kiln.stats/1");
  count(kDisk, 1);
  EXPECT_EQ(kiln({"stats", "--since", "--json"}).json()["since"]["hits"]["disk"], 1);
  EXPECT_EQ(kiln({"stats", "--mark"}).status, 0) << "set anew";
  EXPECT_EQ(kiln({"stats", "--since", "--json"}).json()["since"]["hits"]["disk"], 0);
}

TEST_F(Marks, AnUnknownOneNamesThoseThereAre) {
  Finished r = kiln({"stats", "--since", "release"});
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("no mark 'release'"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("there is none yet"), std::string::npos) << r.err;
  kiln({"stats", "--mark", "zeta"}), kiln({"stats", "--mark", "releas"});
  r = kiln({"stats", "--since", "release", "--json"});
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("there are: releas zeta"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("did you mean 'releas'"), std::string::npos) << r.err;
  EXPECT_EQ(r.json()["error"]["code"], "invalid_argument");
}

TEST_F(Marks, NamesLeadNowhere) {
  for (const std::string& name :
       {std::string("../counters"), std::string("a/b"), std::string(".hidden"), std::string(".."),
        std::string("a b"), std::string("a\nb"), std::string("\xc3\xa4"), std::string(65, 'a')}) {
    for (const char* option : {"--mark", "--since"}) {
      const Finished r = kiln({"stats", option, name});
      EXPECT_EQ(r.status, 2) << name;
      EXPECT_NE(r.err.find("is no name for a mark"), std::string::npos) << r.err;
    }
  }
  EXPECT_FALSE(exists(cache() + "/v1/marks"));
  EXPECT_EQ(kiln({"stats", "--mark", std::string(64, 'a')}).status, 0);
  EXPECT_EQ(kiln({"stats", "--mark", "A.b_c-1"}).status, 0);
}

TEST_F(Marks, CountersThatBeganAnewAreSaidAndNeverNegative) {
  count(kDisk, 100);
  count(kCompiles, 2);
  kiln({"stats", "--mark", "m"});
  base::write_file(tally(), "no tally", 0600);
  count(kDisk, 7);
  count(kCompiles, 9);
  const auto json = since("m");
  EXPECT_EQ(json["reset"], true);
  EXPECT_EQ(json["hits"]["disk"], 7) << "since they started again from zero";
  EXPECT_EQ(json["compiles"], 9);
  EXPECT_NE(kiln({"stats", "--since", "m"}).out.find("started again from zero"), std::string::npos);
}

TEST_F(Marks, ClearAndGcLeaveCountersAndMarksAlone) {
  count(kWaits, 4);
  kiln({"stats", "--mark", "m"});
  ASSERT_EQ(kiln({"gc"}).status, 0);
  ASSERT_EQ(kiln({"clear", "--yes"}).status, 0);
  count(kWaits, 1);
  EXPECT_EQ(since("m")["waits"], 1);
  const auto json = kiln({"stats", "--json"}).json();
  EXPECT_EQ(json["entries"], 0);
  EXPECT_EQ(json["lifetime"]["waits"], 5);
  EXPECT_NE(kiln({"stats"}).out.find("5 calls waited for the compile of another caller"), std::string::npos)
      << "a store without entries has a past";
}

TEST_F(Marks, ADamagedOneIsSaid) {
  kiln({"stats", "--mark", "m"});
  const std::string file = cache() + "/v1/marks/m", good = base::read_file(file)->bytes;
  for (const std::string& bad :
       {std::string(), std::string("kiln-mark 1\n"), good.substr(0, good.size() / 2),
        std::string("kiln-mark 2") + good.substr(11), good + "more\n", std::string(5000, 'x')}) {
    base::write_file(file, bad, 0600);
    const Finished r = kiln({"stats", "--since", "m"});
    EXPECT_EQ(r.status, 1) << bad;
    EXPECT_NE(r.err.find(file), std::string::npos) << r.err;
  }
  EXPECT_EQ(kiln({"stats", "--mark", "m"}).status, 0);
  EXPECT_EQ(since("m")["waits"], 0);
}

TEST_F(Marks, WhatIsPlantedInTheirPlaceIsLeftAlone) {
  ASSERT_EQ(::mkdir(path("elsewhere").c_str(), 0700), 0);
  ASSERT_EQ(::symlink(path("elsewhere").c_str(), (cache() + "/v1/marks").c_str()), 0);
  const Finished r = kiln({"stats", "--mark", "m"});
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.err.find("not a directory of this user"), std::string::npos) << r.err;
  EXPECT_FALSE(exists(path("elsewhere/m")));
}

TEST_F(Marks, AStoreThatIsNotThereHasNone) {
  const Finished r = kiln({"stats", "--mark"}, {{"KILN_CACHE_DIR", path("nowhere")}});
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.err.find("no counters to mark"), std::string::npos) << r.err;
  EXPECT_FALSE(exists(path("nowhere")));
}

TEST_F(Marks, OptionsThatContradictAreRefused) {
  EXPECT_EQ(kiln({"stats", "--mark", "a", "--since", "b"}).status, 2);
  EXPECT_EQ(kiln({"stats", "--mark", "a", "--prometheus"}).status, 2);
  EXPECT_EQ(kiln({"stats", "--prometheus", "--json"}).status, 2);
  EXPECT_EQ(kiln({"stats", "--label", "a=b"}).status, 2);
}

TEST_F(Marks, AReadOnlyStoreIsAClearErrorAndItsCountersAreShown) {
  KILN_NEEDS_ROOT();
  count(kDisk, 5);
  kiln({"stats", "--mark", "m"});
  count(kDisk, 1);
  const std::string answer = kiln::testing::as_user(0, [&]() -> std::string {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount(cache().c_str(), cache().c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        ::mount(nullptr, cache().c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0)
      return "no mount";
    const Finished mark = kiln({"stats", "--mark", "n"}), shown = kiln({"stats", "--since", "m", "--json"});
    return std::to_string(mark.status) + ' ' + std::to_string(shown.status) + ' ' +
           std::to_string(shown.json()["since"]["hits"]["disk"].get<int>()) + ' ' + mark.err;
  });
  if (answer == "no mount") GTEST_SKIP() << "a file system cannot be mounted here";
  EXPECT_EQ(answer.rfind("1 0 1 ", 0), 0u) << answer;
  EXPECT_NE(answer.find("cannot keep a mark in '" + cache() + "/v1/marks'"), std::string::npos) << answer;
  EXPECT_NE(answer.find("Read-only file system"), std::string::npos) << answer;
}

class Savings : public KilnCompiler {};

TEST_F(Savings, AHitSavesWhatItsRecordCostToCompile) {
  ASSERT_EQ(kiln({"compile", "scale", "N=1", "--arch", "sm_90a"}).status, 0);
  auto lifetime = kiln({"stats", "--json"}).json()["lifetime"];
  EXPECT_EQ(lifetime["compile_saved_ms"], 0);
  for (int i = 0; i < 2; ++i)
    ASSERT_EQ(kiln({"compile", "scale", "N=1", "--arch", "sm_90a", "--json"}).json()["outcome"], "disk");
  const auto json = kiln({"stats", "--json"}).json();
  EXPECT_EQ(json["lifetime"]["hits"]["disk"], 2);
  EXPECT_NEAR(json["lifetime"]["compile_saved_ms"].get<double>(), 2 * json["compile_ms"].get<double>(), 0.01);
}

TEST_F(Savings, AProcessThatALayerServesWhollyCountsInTheStoreThatIsThere) {
  const std::string layer = path("layer");
  write("plan.toml", "[[prewarm]]\ntemplate = \"scale\"\nN = 1\narch = \"sm_90a\"\n");
  ASSERT_EQ(kiln({"prewarm", path("plan.toml"), "--layer", layer}).status, 0);
  ASSERT_EQ(kiln({"compile", "scale", "N=2", "--arch", "sm_90a"}).status, 0);  // creates the store
  const Environment layers{{"KILN_CACHE_LAYERS", layer}};
  ASSERT_EQ(kiln({"compile", "scale", "N=1", "--arch", "sm_90a", "--json"}, layers).json()["outcome"],
            "layer");
  ASSERT_EQ(kiln({"why", "scale", "N=1", "--arch", "sm_90a"}, layers).status, 0);  // a look counts nothing
  EXPECT_EQ(kiln({"stats", "--json"}).json()["lifetime"]["hits"]["layer"], 1);
}

TEST_F(Savings, ARefusalOfASealedProcessIsCounted) {
  ASSERT_EQ(kiln({"compile", "scale", "N=1", "--arch", "sm_90a"}).status, 0);
  EXPECT_EQ(kiln({"compile", "scale", "N=2", "--arch", "sm_90a"}, {{"KILN_MODE", "sealed"}}).status, 1);
  EXPECT_EQ(kiln({"stats", "--json"}).json()["lifetime"]["sealed_misses"], 1);
}

}  // namespace
}  // namespace kiln::test

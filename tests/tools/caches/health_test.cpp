// The spaces of other JIT compilers in `kiln report`, `top`, `doctor` and `caches stats`.
#include <array>

#include "cache/store/tally.hpp"
#include "tools/caches/fixture.hpp"

using namespace kiln;
using namespace kiln::test;

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

/// Counters in the order of runtime::blob_counters().
struct Counted {
  std::uint64_t hits = 0, misses = 0, damaged = 0, sealed_misses = 0, remote_hits = 0, waits = 0,
                wait_timeouts = 0, puts = 0, puts_present = 0, puts_skipped = 0, evictions = 0,
                bytes_read = 0, bytes_written = 0;
};

struct CacheHealth : CachesCommand {
  void SetUp() override {
    CachesCommand::SetUp();
    write_old("jit/a", "one");
    write_old("jit/b", "two");
  }
  void count(const std::string& space, const Counted& counted) const {
    cache::Tally tally(cache() + "/v1", "counters." + space);
    static_assert(sizeof counted == 13 * sizeof(std::uint64_t));
    EXPECT_TRUE(tally.add({&counted.hits, 13}));
  }
  Json of_space(const Json& spaces, const std::string& name) const {
    for (const Json& space : spaces)
      if (space["space"] == name) return space;
    ADD_FAILURE() << "no space " << name << " in " << spaces;
    return {};
  }
  /// The findings of doctor about caches, as "status: text; fix".
  std::vector<std::string> findings(const Environment& environment = {}) {
    const Json json = kiln({"doctor", "--json"}, environment).json();
    std::vector<std::string> out;
    for (const Json& finding : json.at("findings"))
      if (finding["name"] == "caches")
        out.push_back(finding["status"].get<std::string>() + ": " + finding["text"].get<std::string>() +
                      "; " + (finding["fix"].is_null() ? "" : finding["fix"].get<std::string>()));
    return out;
  }
  /// True when one of the findings has all these texts in it.
  static bool is_among(const std::vector<std::string>& findings, const std::vector<std::string>& texts) {
    return std::any_of(findings.begin(), findings.end(), [&](const std::string& finding) {
      return std::all_of(texts.begin(), texts.end(),
                         [&](const std::string& text) { return finding.find(text) != std::string::npos; });
    });
  }
  static std::string all(const std::vector<std::string>& findings) {
    std::string out;
    for (const std::string& finding : findings) out += finding + '\n';
    return out;
  }
};

}  // namespace

TEST_F(CacheHealth, EveryCommandShowsWhatProcessesCounted) {
  capture({path("jit"), "--name", "j"});
  restore({"j", "--to", path("place")});
  const Finished written = kiln({"report", path("page.html"), "--json"});
  ASSERT_EQ(written.status, 0) << written.err;
  const Json of_report = of_space(written.json()["spaces"], "files");
  const Finished shown = kiln({"top", "--json"});
  ASSERT_EQ(shown.status, 0) << shown.err;
  const Json of_top = of_space(shown.json()["spaces"], "files");
  const Json of_stats = of_space(kiln({"caches", "stats", "--json"}).json()["spaces"], "files")["counts"];
  for (const Json& counts : {of_report, of_top, of_stats}) {
    EXPECT_EQ(counts["puts"], 2);
    EXPECT_EQ(counts["hits"], 2);
    EXPECT_EQ(counts["misses"], 0);
    EXPECT_EQ(counts["bytes_read"], 6);
    EXPECT_EQ(counts["sealed_misses"], 0);
  }
  EXPECT_EQ(of_report["blobs"], 2);
  EXPECT_EQ(of_report["content_bytes"], 6);
  EXPECT_EQ(of_space(written.json()["spaces"], "dir")["misses"], 1) << "of the first capture";
  const std::string page = base::read_file(path("page.html"))->bytes;
  EXPECT_NE(page.find("Spaces of other JIT compilers"), std::string::npos);
  EXPECT_NE(page.find("100.0 %"), std::string::npos);
  const std::string screen = kiln({"top"}).out;
  EXPECT_NE(screen.find("SPACE"), std::string::npos) << screen;
  EXPECT_NE(screen.find("files"), std::string::npos) << screen;
}

TEST_F(CacheHealth, AStoreWithoutBlobsHasNoSpaces) {
  fill(2);
  const Finished written = kiln({"report", path("page.html"), "--json"});
  EXPECT_EQ(written.json()["spaces"], Json::array());
  EXPECT_NE(base::read_file(path("page.html"))->bytes.find("No other JIT compiler has used this store"),
            std::string::npos);
  EXPECT_EQ(kiln({"top", "--json"}).json()["spaces"], Json::array());
  EXPECT_EQ(kiln({"top"}).out.find("SPACE"), std::string::npos);
  EXPECT_TRUE(findings().empty()) << all(findings());
}

TEST_F(CacheHealth, ADamagedCounterFileIsNoCounts) {
  put({"triton", "v1", "k"}, "content");
  write("cache/v1/counters.triton", "no counters");
  write("cache/v1/counters.NO SPACE", "");
  const Json spaces = kiln({"top", "--json"}).json()["spaces"];
  ASSERT_EQ(spaces.size(), 1u) << spaces;
  EXPECT_EQ(spaces[0]["hits"], 0);
}

TEST_F(CacheHealth, DoctorNamesWhatWentWrongInASpace) {
  put({"triton", "v1", "k"}, "content");
  Counted counted;
  counted.hits = 7, counted.misses = 3;
  count("triton", counted);
  auto found = findings();
  ASSERT_EQ(found.size(), 1u) << all(found);
  EXPECT_TRUE(is_among(found, {"ok: space triton: 1 blob", "7 hits, 3 misses"})) << all(found);

  counted.sealed_misses = 4, counted.puts_skipped = 1, counted.damaged = 2, counted.wait_timeouts = 5;
  count("triton", counted);
  found = findings();
  EXPECT_TRUE(is_among(found, {"note: space triton: 4 lookups after the seal", "kiln bundle export"}))
      << all(found);
  EXPECT_TRUE(is_among(found, {"1 blob could not be stored", "KILN_CACHE_MAX_SIZE"})) << all(found);
  EXPECT_TRUE(is_among(found, {"2 records failed", "kiln verify"})) << all(found);
  EXPECT_TRUE(is_among(found, {"5 callers waited", "kiln top"})) << all(found);
  const std::string screen = kiln({"top"}).out;
  EXPECT_NE(screen.find(" 7\n"), std::string::npos) << "what failed, together\n" << screen;
}

TEST_F(CacheHealth, DoctorNamesASpaceBeyondItsBudget) {
  std::string content(100'000, 0);
  std::uint64_t state = 1;
  for (int i = 0; i < 30; ++i) {
    for (char& c : content) c = static_cast<char>((state = state * 6364136223846793005u + 1) >> 56);
    put({"triton", "v1", std::to_string(i)}, content);
  }
  const auto found = findings({{"KILN_CACHE_MAX_SIZE", "4M"}});
  EXPECT_TRUE(is_among(found, {"warning: space triton: its blobs have", "more than the 2.0 MiB",
                               "raise KILN_CACHE_MAX_SIZE", "does not record a budget that a program gave"}))
      << all(found);
  EXPECT_FALSE(is_among(findings(), {"warning"}));
}

TEST_F(CacheHealth, DoctorSaysThatItDoesNotKnowABudgetOfAProgram) {
  put({"triton", "v1", "k"}, "content");
  Counted counted;
  counted.evictions = 3;
  count("triton", counted);
  const auto found = findings();
  EXPECT_TRUE(is_among(found, {"note: space triton: its blobs have", "3 records had to go",
                               "gave a smaller budget", "does not record a budget that a program gave"}))
      << all(found);
}

TEST_F(CacheHealth, DoctorNamesASwitchThatHasNoEffect) {
  EXPECT_TRUE(findings().empty());
  EXPECT_TRUE(
      is_among(findings({{"KILN_CACHES", "on"}}),
               {"warning: KILN_CACHES = 'on'", "no directory of PYTHONPATH", "kiln wrap -- COMMAND"}));
  EXPECT_TRUE(is_among(findings({{"KILN_CACHES", "triton,indctor"}}), {"warning", "'indctor'"}));
  EXPECT_TRUE(findings({{"KILN_CACHES", "off"}}).empty());
  const std::string start = std::string(places::kSourceDirectory) + "/python/kiln/caches/start";
  EXPECT_TRUE(is_among(findings({{"KILN_CACHES", "on"}, {"PYTHONPATH", start}}), {"ok: KILN_CACHES"}));
  fs::create_directories(path("other"));
  write("other/sitecustomize.py", "print('mine')\n");
  const std::string both = path("other") + ':' + start;
  EXPECT_TRUE(is_among(findings({{"KILN_CACHES", "on"}, {"PYTHONPATH", both}}),
                       {"warning", "comes before kiln's in PYTHONPATH", "first in PYTHONPATH"}));
  EXPECT_TRUE(
      is_among(findings({{"KILN_CACHES", "on"}, {"PYTHONPATH", start + ':' + path("other")}}), {"ok:"}));
}

TEST_F(CacheHealth, DoctorNamesACacheManagerThatWasSetByHand) {
  const std::string start = std::string(places::kSourceDirectory) + "/python/kiln/caches/start";
  const auto with = [&](const std::string& manager, const std::string& backend = {}) {
    Environment out{{"KILN_CACHES", "on"}, {"PYTHONPATH", start}, {"TRITON_CACHE_MANAGER", manager}};
    if (!backend.empty()) out["TRITON_REMOTE_CACHE_BACKEND"] = backend;
    return findings(out);
  };
  EXPECT_TRUE(
      is_among(with("my.cache:Manager"), {"warning: TRITON_CACHE_MANAGER = 'my.cache:Manager'", "unset it"}));
  EXPECT_TRUE(is_among(with("kiln.caches.triton:CacheManager"), {"ok:"}));
  EXPECT_TRUE(is_among(with("kiln.caches.triton:Manager"), {"warning", "names no cache manager of kiln"}));
  const std::string remote = "triton.runtime.cache:RemoteCacheManager";
  EXPECT_TRUE(is_among(with(remote, "kiln.caches.triton:RemoteCacheBackend"), {"ok:"}));
  EXPECT_TRUE(is_among(with(remote, "triton.runtime.cache:RedisRemoteCacheBackend"),
                       {"warning: TRITON_REMOTE_CACHE_BACKEND"}));
  EXPECT_TRUE(findings({{"TRITON_CACHE_MANAGER", "my.cache:Manager"}}).empty()) << "kiln is not asked for";
}

TEST_F(CacheHealth, DoctorNamesValuesThatAreWrong) {
  EXPECT_TRUE(
      is_among(findings({{"KILN_CACHES_WAIT", "soon"}}), {"warning: KILN_CACHES_WAIT = 'soon'", "120"}));
  EXPECT_TRUE(is_among(findings({{"KILN_CACHES_WAIT", "-1"}}), {"KILN_CACHES_WAIT = '-1' is negative"}));
  for (const std::string good : {"0", "2.5", "1e3", "inf"})
    EXPECT_TRUE(findings({{"KILN_CACHES_WAIT", good}}).empty()) << good;
  EXPECT_TRUE(is_among(findings({{"KILN_CACHES_SEALED", "yes"}}), {"warning: KILN_CACHES_SEALED = 'yes'"}));
  for (const std::string good : {"count", "refuse"})
    EXPECT_TRUE(findings({{"KILN_CACHES_SEALED", good}}).empty()) << good;
  EXPECT_TRUE(is_among(findings({{"KILN_CACHES_REPORT", path("absent")}}), {"warning: KILN_CACHES_REPORT"}));
  EXPECT_TRUE(findings({{"KILN_CACHES_REPORT", path("jit")}}).empty());
}

// KILN_RECORD to `kiln prewarm` and back: the record of a production host fills the next host's cache.
#include <set>

#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

class PrewarmRecord : public KilnCompiler {
 protected:
  std::string record() const { return path("record.toml"); }
  Environment recording(const std::string& mode = "jit") const {
    return {{"KILN_RECORD", record()}, {"KILN_MODE", mode}};
  }
  std::string text() const {
    const auto content = base::read_file(record());
    return content ? content->bytes : "";
  }
  std::size_t rows() const {
    std::size_t count = 0;
    const std::string all = text();
    for (std::size_t at = 0; (at = all.find("\n# end\n", at)) != std::string::npos; ++at) ++count;
    return count;
  }
};

TEST_F(PrewarmRecord, WhatEightProcessesAskedForIsWarmOnAnotherHost) {
  std::set<std::pair<int, bool>> asked;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Running>> processes;
    for (int p = 0; p < 8; ++p) {
      const int n = 1 + (3 * p + round) % 12;  // rounds and processes overlap
      const bool flag = p % 2 != 0;
      asked.emplace(n, flag);
      processes.push_back(start({"compile", "scale", "N=" + std::to_string(n),
                                 std::string("FLAG=") + (flag ? "true" : "false"), "--json"},
                                recording()));
    }
    for (const auto& process : processes) {
      const Finished r = process->wait();
      EXPECT_EQ(r.status, 0) << r.err;
      EXPECT_EQ(r.err, "");
    }
  }
  EXPECT_EQ(rows(), asked.size());

  const Environment elsewhere{{"KILN_CACHE_DIR", path("elsewhere")}};
  const auto made = kiln({"prewarm", record(), "--json"}, elsewhere).json();
  EXPECT_EQ(made["total"], asked.size());
  EXPECT_EQ(made["compiled"], asked.size());
  EXPECT_EQ(made["repeats"], 0);
  EXPECT_EQ(kiln({"prewarm", record(), "--check"}, elsewhere).status, 0);

  const Environment sealed{{"KILN_CACHE_DIR", path("elsewhere")}, {"KILN_MODE", "sealed"}};
  for (const auto& [n, flag] : asked) {
    const Finished r = kiln({"compile", "scale", "N=" + std::to_string(n),
                             std::string("FLAG=") + (flag ? "true" : "false"), "--json"},
                            sealed);
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.json()["outcome"], "disk");
    EXPECT_EQ(r.json()["compile_ms"], 0.0);
  }
}

TEST_F(PrewarmRecord, ASealedMissShowsThePlanAndPrewarmMakesItInTheSameEnvironment) {
  const Environment sealed{{"KILN_MODE", "sealed"}};
  const Finished refused = kiln({"compile", "scale", "N=7", "--arch", "sm_90a"}, sealed);
  EXPECT_EQ(refused.status, 1);
  const auto begin = refused.err.find("[[prewarm]]");
  ASSERT_NE(begin, std::string::npos) << refused.err;
  write("shown.toml", refused.err.substr(begin));
  const auto made = kiln({"prewarm", path("shown.toml"), "--json"}, sealed).json();
  EXPECT_EQ(made["compiled"], 1) << "prewarm fills caches, whatever the mode";
  EXPECT_EQ(made["entries"][0]["params"]["N"], "7");
  EXPECT_EQ(kiln({"compile", "scale", "N=7", "--arch", "sm_90a"}, sealed).status, 0);
}

TEST_F(PrewarmRecord, EveryModeRecordsAndASealedMissTellsWhatIsMissing) {
  EXPECT_EQ(kiln({"compile", "scale", "N=1"}, recording("jit")).status, 0);
  EXPECT_EQ(kiln({"compile", "scale", "N=2"}, recording("warn")).status, 0);
  EXPECT_EQ(kiln({"compile", "scale", "N=3"}, recording("sealed")).status, 1);
  EXPECT_EQ(kiln({"compile", "scale", "N=3"}, recording("sealed")).status, 1);
  EXPECT_EQ(rows(), 3u);
  const auto json = kiln({"prewarm", record(), "--json"}).json();
  EXPECT_EQ(json["from_disk"], 2);
  EXPECT_EQ(json["compiled"], 1);
  EXPECT_EQ(kiln({"compile", "scale", "N=3"}, recording("sealed")).status, 0);
  EXPECT_EQ(rows(), 3u);
}

TEST_F(PrewarmRecord, PrewarmItselfRecordsNothing) {
  write("plan.toml", "[[prewarm]]\ntemplate = \"scale\"\nN = 1\n");
  EXPECT_EQ(kiln({"prewarm", path("plan.toml")}, recording()).status, 0);
  EXPECT_EQ(text(), "");
}

TEST_F(PrewarmRecord, ARowThatWasNeverFinishedIsAWarning) {
  EXPECT_EQ(kiln({"compile", "scale", "N=1"}, recording()).status, 0);
  const std::string whole = text();
  const auto lines = std::count(whole.begin(), whole.end(), '\n');
  write("record.toml", whole + "[[prewarm]]\ntemplate = \"scale\"\nN = \"2");
  const Finished torn = kiln({"prewarm", record(), "--json"});
  EXPECT_EQ(torn.status, 0) << torn.err;
  EXPECT_EQ(torn.json()["total"], 1);
  EXPECT_NE(torn.err.find("record.toml:" + std::to_string(lines + 1) + ": "), std::string::npos) << torn.err;
  // The next process that records heals it.
  EXPECT_EQ(kiln({"compile", "scale", "N=3"}, recording()).status, 0);
  const Finished healed = kiln({"prewarm", record(), "--json"});
  EXPECT_EQ(healed.json()["total"], 2);
  EXPECT_EQ(healed.err.find("never finished"), std::string::npos) << healed.err;
}

TEST_F(PrewarmRecord, AFaultOfTheRecordIsOneWarningAndTheKernelIsServed) {
  const Finished r =
      kiln({"compile", "scale", "N=1", "--repeat", "3"}, {{"KILN_RECORD", path("nowhere/record.toml")}});
  EXPECT_EQ(r.status, 0);
  const auto first = r.err.find("KILN_RECORD");
  ASSERT_NE(first, std::string::npos) << r.err;
  EXPECT_EQ(r.err.find("KILN_RECORD", first + 1), std::string::npos) << r.err;
}

}  // namespace
}  // namespace kiln::test

// kiln prewarm.
#include <signal.h>

#include <chrono>
#include <thread>

#include "kiln_process.hpp"

namespace kiln::test {
namespace {

class Prewarm : public KilnCompiler {
 protected:
  /// A plan file of `picky`, whose N = 2 does not compile.
  std::string plan(const std::string& rows) {
    write("plan.toml", "[[prewarm]]\ntemplate = \"picky\"\n" + rows);
    return path("plan.toml");
  }
};

TEST_F(Prewarm, MakesEverythingThenFindsEverything) {
  // --template-path's `scale` and what is shipped: the default plan.
  const auto first = kiln({"prewarm", "--json"}).json();
  EXPECT_EQ(first["schema"], "kiln.prewarm/1");
  EXPECT_GE(first["total"].get<int>(), 3);
  EXPECT_EQ(first["compiled"], first["total"]);
  EXPECT_EQ(first["failed"], 0);
  const auto second = kiln({"prewarm", "--json"}).json();
  EXPECT_EQ(second["from_disk"], first["total"]);
  EXPECT_EQ(second["compiled"], 0);
  EXPECT_EQ(second["cubin_bytes"], first["cubin_bytes"]);
  for (const auto& entry : second["entries"]) EXPECT_EQ(entry["outcome"], "disk");
}

TEST_F(Prewarm, CheckSaysWhatIsNotCovered) {
  const std::string file = plan("N = [1, 3]\n");
  const Finished before = kiln({"prewarm", file, "--check"});
  EXPECT_EQ(before.status, 3);
  EXPECT_NE(before.out.find("missing  picky N=1"), std::string::npos) << before.out;
  EXPECT_NE(before.out.find("0 of 2 specialisations covered"), std::string::npos) << before.out;
  EXPECT_EQ(kiln({"ls", "--json"}).json()["count"], 0);
  EXPECT_EQ(kiln({"prewarm", file}).status, 0);
  const Finished after = kiln({"prewarm", file, "--check", "--json"});
  EXPECT_EQ(after.status, 0);
  EXPECT_EQ(after.json()["covered"], 2);
  EXPECT_EQ(after.json()["missing"], 0);
}

TEST_F(Prewarm, PlainLinesWithoutATerminal) {
  const Finished r = kiln({"prewarm", plan("N = [1, 3]\n"), "-j1"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.err, "");
  EXPECT_EQ(r.out.rfind("[1/2] compiled picky N=1 ", 0), 0u) << r.out;
  EXPECT_NE(r.out.find("\n[2/2] compiled picky N=3 "), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("2 of 2 specialisations: 0 from disk, 2 compiled"), std::string::npos) << r.out;
  EXPECT_EQ(r.out.find('\033'), std::string::npos);
  EXPECT_EQ(r.out.find('\r'), std::string::npos);
}

TEST_F(Prewarm, TheFirstFailureStopsNewWork) {
  const Finished r = kiln({"prewarm", plan("N = [1, 2, 3, 4]\n"), "-j1"});
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.out.find("1 failed, 2 not started"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("two is refused"), std::string::npos) << r.out;
  EXPECT_NE(r.err.find("kiln: error: 1 specialisation failed"), std::string::npos) << r.err;
  EXPECT_EQ(kiln({"ls", "--json"}).json()["count"], 1);
}

TEST_F(Prewarm, KeepGoingMakesTheRestAndIsPartlyDone) {
  const Finished r = kiln({"prewarm", plan("N = [1, 2, 3]\n"), "--keep-going", "--json"});
  EXPECT_EQ(r.status, 3);
  const auto json = r.json();
  EXPECT_EQ(json["compiled"], 2);
  EXPECT_EQ(json["failed"], 1);
  EXPECT_EQ(json["error"]["code"], "compile_failed");
  EXPECT_EQ(json["entries"][1]["outcome"], "failed");
  EXPECT_EQ(json["entries"][1]["error"]["code"], "compile_failed");
}

TEST_F(Prewarm, NothingMadeIsFailedEvenWhenKeptGoing) {
  EXPECT_EQ(kiln({"prewarm", plan("N = 2\n"), "--keep-going"}).status, 1);
}

TEST_F(Prewarm, RepeatsAreMadeOnce) {
  const std::string rows =
      "template = \"scale\"\nN = [1, 1]\n[[prewarm]]\ntemplate = \"scale\"\nN = 1\nFLAG = false\n";
  write("repeats.toml", "[[prewarm]]\n" + rows);
  const auto json = kiln({"prewarm", path("repeats.toml"), path("repeats.toml"), "--json"}).json();
  EXPECT_EQ(json["total"], 1);
}

TEST_F(Prewarm, EveryArchOfTheListAndTheRowsOwn) {
  write("archs.toml",
        "[[prewarm]]\ntemplate = \"scale\"\nN = 1\n[[prewarm]]\ntemplate = \"scale\"\nN = 2\narch = "
        "\"sm_120\"\n");
  const auto json = kiln({"prewarm", path("archs.toml"), "--arch", "80,sm_90,90a", "--json"}).json();
  std::vector<std::string> archs;
  for (const auto& entry : json["entries"]) archs.push_back(entry["arch"].get<std::string>());
  EXPECT_EQ(archs, (std::vector<std::string>{"sm_80", "sm_90a", "sm_120a"}));
}

TEST_F(Prewarm, ARowForAnArchThatTheTemplateLacksIsSkippedUnlessItNamesTheArch) {
  const auto json = kiln({"prewarm", plan("N = 1\n"), "--arch", "sm_80,sm_90a", "--json"}).json();
  EXPECT_EQ(json["total"], 1);
  EXPECT_EQ(json["skipped"].size(), 1u);
  EXPECT_EQ(kiln({"prewarm", plan("N = 1\narch = \"sm_80\"\n")}).status, 2);
}

TEST_F(Prewarm, AWrongPlanIsRefusedBeforeAnythingIsCompiled) {
  const Finished r = kiln({"prewarm", plan("N = [1, 77]\n")});
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("plan.toml"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("77"), std::string::npos) << r.err;
  EXPECT_EQ(kiln({"ls", "--json"}).json()["count"], 0);
  EXPECT_EQ(kiln({"prewarm", path("none.toml")}).status, 1);
  write("syntax.toml", "[[prewarm]\n");
  const Finished syntax = kiln({"prewarm", path("syntax.toml")});
  EXPECT_EQ(syntax.status, 1);
  EXPECT_NE(syntax.err.find("syntax.toml:1"), std::string::npos) << syntax.err;
}

TEST_F(Prewarm, InterruptStopsNewWorkAndKeepsWhatIsDone) {
  write(
      "long.toml", "[[prewarm]]\ntemplate = \"scale\"\nFLAG = [true, false]\nN = [" + [] {
        std::string all;
        for (int n = 1; n <= 64; ++n) all += n == 13 ? "" : (all.empty() ? "" : ",") + std::to_string(n);
        return all;
      }() + "]\n");
  auto process = start({"prewarm", path("long.toml"), "-j1"});
  while (process->out().find("[  2/126]") == std::string::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  process->send(SIGINT);
  const Finished r = process->wait();
  EXPECT_EQ(r.status, 130) << r.err;
  EXPECT_NE(r.out.find("not started"), std::string::npos) << r.out;
  const auto cached = kiln({"ls", "--json"}).json()["count"].get<int>();
  EXPECT_GE(cached, 2);
  EXPECT_LT(cached, 126);
  // Started again, it goes on where it was.
  auto again = start({"prewarm", path("long.toml"), "-j1"});
  while (again->out().find("[  2/126]") == std::string::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  again->send(SIGINT);
  EXPECT_NE(again->wait().out.find("[  1/126] disk "), std::string::npos);
}

}  // namespace
}  // namespace kiln::test

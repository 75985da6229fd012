// kiln prewarm.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

class Prewarm : public KilnCompiler {
 protected:
  /// Writes a plan file for `picky`, whose N = 2 does not compile.
  std::string plan(const std::string& rows) {
    write("plan.toml", "[[prewarm]]\ntemplate = \"picky\"\n" + rows);
    return path("plan.toml");
  }
};

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
  EXPECT_EQ(json["repeats"], 5);  // twice three rows, and one of them is not a repeat
}

TEST_F(Prewarm, AGenerationOfGpusGetsTheFewestImages) {
  write("templates/wide.toml",
        "format = 1\n[template]\nname = \"wide\"\nsource = \"wide.cu\"\ninstantiate = \"wide<{N}>\"\n"
        "arch = { min = \"sm_80\", features = \"family\" }\n[param.N]\nkind = \"int\"\nrange = [1, 9]\n"
        "[launch]\ngrid = [\"1\"]\nblock = [\"32\"]\n");
  write("templates/wide.cu", "template <int N> __global__ void wide() {}\n");
  write("plan.toml", "[[prewarm]]\ntemplate = \"wide\"\nN = 1\n");
  const Finished r = kiln({"prewarm", path("plan.toml"), "--arch", "blackwell,H100", "--json"});
  ASSERT_EQ(r.status, 0) << r.out << r.err;
  std::set<std::string> archs;
  const auto made = r.json();
  for (const auto& entry : made["entries"]) archs.insert(entry["arch"].get<std::string>());
  EXPECT_EQ(archs, (std::set<std::string>{"sm_100f", "sm_120f", "sm_90a"}));

  const Finished check =
      kiln({"prewarm", path("plan.toml"), "--check", "--gpus", "B200,B300,gb-10,sm_89", "--json"});
  EXPECT_EQ(check.status, 3) << "nothing serves sm_89";
  const auto gpus = check.json()["gpus"];
  ASSERT_EQ(gpus.size(), 4u);
  EXPECT_EQ(gpus[0]["by"], nlohmann::json::parse(R"({"sm_100f": 1})"));
  EXPECT_EQ(gpus[1]["by"], nlohmann::json::parse(R"({"sm_100f": 1})")) << "one image for both";
  EXPECT_EQ(gpus[1]["compute_capability"], "10.3");
  EXPECT_EQ(gpus[2]["by"], nlohmann::json::parse(R"({"sm_120f": 1})"));
  EXPECT_EQ(gpus[3]["covered"], 0);
  EXPECT_EQ(gpus[3]["missing"][0]["template"], "wide");
  const auto why = kiln({"why", "wide", "N=1", "--arch", "sm_103", "--json"}).json();
  EXPECT_EQ(why["outcome"], "other_arch");
  EXPECT_NE(why["says"].get<std::string>().find("sm_100f"), std::string::npos);
  const Finished covered =
      kiln({"prewarm", path("plan.toml"), "--check", "--arch", "sm_103,sm_90", "--json"});
  EXPECT_EQ(covered.status, 0) << "as why and --gpus say";
  EXPECT_EQ(covered.json()["entries"][0]["served_by"], "sm_100f");
  EXPECT_FALSE(covered.json()["entries"][1].contains("served_by"));
  EXPECT_EQ(kiln({"prewarm", path("plan.toml"), "--check", "--arch", "sm_103f"}).status, 3)
      << "no GPU's own arch";
  const Finished told = kiln({"prewarm", path("plan.toml"), "--check", "--arch", "sm_103"});
  EXPECT_NE(told.out.find("served   wide N=1 sm_103a by the image for sm_100f"), std::string::npos)
      << told.out;
  const Finished refused = kiln({"compile", "wide", "N=1", "--arch", "sm_103"}, {{"KILN_MODE", "sealed"}});
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.err.find("(the image for sm_100f serves such a GPU)"), std::string::npos) << refused.err;
  const Finished text = kiln({"prewarm", path("plan.toml"), "--check", "--gpus", "B300"});
  EXPECT_EQ(text.status, 0);
  EXPECT_NE(text.out.find("B300  10.3"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("1 by sm_100f"), std::string::npos) << text.out;
  write("own.toml", "[[prewarm]]\ntemplate = \"wide\"\narch = \"sm_103a\"\nN = 1\n");
  const auto own = kiln({"prewarm", path("own.toml"), "--check", "--gpus", "B200,L4", "--json"}).json();
  EXPECT_EQ(own["gpus"][0]["by"], nlohmann::json::parse(R"({"sm_100f": 1})"))
      << "the row's arch does not matter";
  EXPECT_EQ(own["gpus"][1]["covered"], 0);
  for (const Arguments& wrong :
       {Arguments{"--gpus", ","}, Arguments{"--gpus", ""}, Arguments{"--gpus", "sm_100f"},
        Arguments{"--gpus", "B200", "--arch", "sm_90"}}) {
    Arguments words{"prewarm", path("plan.toml"), "--check"};
    words.insert(words.end(), wrong.begin(), wrong.end());
    EXPECT_EQ(kiln(words).status, 2) << wrong.back();
  }
  EXPECT_EQ(kiln({"prewarm", path("plan.toml"), "--arch", "B300", "--device", "NVIDIA B300"}).status, 2);
  const Finished unknown = kiln({"prewarm", path("plan.toml"), "--check", "--gpus", "B9"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_NE(unknown.err.find("'B9'"), std::string::npos) << unknown.err;
  EXPECT_NE(unknown.err.find("blackwell"), std::string::npos) << unknown.err;
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
  EXPECT_EQ(syntax.status, 2);
  EXPECT_NE(syntax.err.find("syntax.toml:1"), std::string::npos) << syntax.err;
}

TEST_F(Prewarm, AnErrorInAPlanNamesItsLineTheValueAndWhatIsAllowed) {
  const auto refused = [this](const std::string& rows, std::initializer_list<std::string> pieces) {
    write("wrong.toml", rows);
    const Finished r = kiln({"prewarm", path("wrong.toml")});
    EXPECT_EQ(r.status, 2) << r.err;
    for (const std::string& piece : pieces) EXPECT_NE(r.err.find(piece), std::string::npos) << r.err;
  };
  const std::string good = "[[prewarm]]\ntemplate = \"scale\"\nN = 1\n";
  refused(good + "[[prewarm]]\ntemplate = \"scal\"\nN = 1\n",
          {"wrong.toml:5: [[prewarm]] template: ", "'scal'", "did you mean 'scale'?"});
  refused(good + "[[prewarm]]\ntemplate = \"scale\"\nN = 1\nM = 2\n",
          {"wrong.toml:7: [[prewarm]] M: ", "no parameter 'M'", "it has: N FLAG"});
  refused(good + "[[prewarm]]\ntemplate = \"scale\"\nFLAG = true\nN = { from = 63, to = 65, step = 1 }\n",
          {"wrong.toml:7: [[prewarm]] N: ", "'65' is not allowed; allowed: 1 to 64"});
  refused(good + "[[prewarm]]\ntemplate = \"scale\"\n",
          {"wrong.toml:4: [[prewarm]]: ", "'N' has no default"});
  refused(good + "[[prewarm]]\ntemplate = \"scale\"\nN = 13\n",
          {"wrong.toml:4: [[prewarm]]: ", "is unlucky"});
  refused(good + "[[prewarm]]\ntemplate = \"picky\"\nN = 1\narch = [\"sm_90\", \"sm_80\"]\n",
          {"wrong.toml:7: [[prewarm]] arch: ", "sm_80"});
  const std::string row = "[[prewarm]]\ntemplate = \"scale\"\n";
  refused(row + "N = 1\narch = \"sm_35\"\n", {"wrong.toml:4: ", "arch", "'sm_35'"});
  refused(row + "N = 1\narch = 90\n", {"wrong.toml:4: ", "arch", "a string"});
  refused(row + "N = { from = 1, to = 9223372036854775807, step = 1 }\n", {"wrong.toml:3: ", "1000000"});
  refused(row + "N = { from = 1 }\n", {"wrong.toml:3: ", "N", "to"});
  refused(row + "N = { from = 3, to = 1, step = 1 }\n", {"wrong.toml:3: ", "empty"});
  refused(row + "N = 1.5\n", {"wrong.toml:3: ", "a fraction"});
  refused(row + "N = [\n", {"wrong.toml:"});
  refused("[[prewarm]]\nN = 1\n", {"wrong.toml:", "template"});
  refused("[[warm]]\nN = 1\n", {"wrong.toml:", "warm"});
  EXPECT_EQ(kiln({"ls", "--json"}).json()["count"], 0);
}

TEST_F(Prewarm, RangesMultiplyWithLists) {
  write("ranges.toml",
        "[[prewarm]]\ntemplate = \"scale\"\nFLAG = [true, false]\n"
        "N = [{ from = 1, to = 4, times = 2 }, { from = 10, to = 12, step = 2 }]\n");
  const auto json = kiln({"prewarm", path("ranges.toml"), "--json"}).json();
  EXPECT_EQ(json["compiled"], 10);
  std::vector<std::string> values;
  for (const auto& entry : json["entries"])
    values.push_back(entry["params"]["N"].get<std::string>() +
                     (entry["params"]["FLAG"] == "true" ? "+" : ""));
  EXPECT_EQ(values, (std::vector<std::string>{"1+", "2+", "4+", "10+", "12+", "1", "2", "4", "10", "12"}));
}

TEST_F(Prewarm, SpecialisationsOfOneTemplateAreNeighbours) {
  write("mixed.toml",
        "[[prewarm]]\ntemplate = \"scale\"\nN = 1\n[[prewarm]]\ntemplate = \"picky\"\nN = 1\n"
        "[[prewarm]]\ntemplate = \"scale\"\nN = 2\n[[prewarm]]\ntemplate = \"picky\"\nN = 3\n");
  std::vector<std::string> order;
  const auto json = kiln({"prewarm", path("mixed.toml"), "--json"}).json();
  for (const auto& entry : json["entries"]) order.push_back(entry["template"]);
  EXPECT_EQ(order, (std::vector<std::string>{"scale", "scale", "picky", "picky"}));
}

TEST_F(Prewarm, TheSummaryHasTheSlowestAndTheCpuTime) {
  const Finished text = kiln({"prewarm", plan("N = [1, 3, 4]\n")});
  EXPECT_NE(text.out.find("\nSLOWEST"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("FRONT END"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("(CPU "), std::string::npos) << text.out;
  std::string numbers;
  for (int n = 14; n <= 25; ++n) numbers += (numbers.empty() ? "" : ",") + std::to_string(n);
  write("twelve.toml", "[[prewarm]]\ntemplate = \"scale\"\nN = [" + numbers + "]\n");
  const auto json = kiln({"prewarm", path("twelve.toml"), "--json"}).json();
  ASSERT_EQ(json["slowest"].size(), 10u);
  double before = 1e9;
  for (const auto& entry : json["slowest"]) {
    const double ms = entry["compile_ms"], front = entry["phases"]["frontend_ms"],
                 nvvm = entry["phases"]["nvvm_ms"], ptxas = entry["phases"]["ptxas_ms"];
    EXPECT_LE(ms, before);
    EXPECT_GT(std::min({front, nvvm, ptxas}), 0);
    EXPECT_LE(front + nvvm + ptxas, ms * 1.05);
    EXPECT_EQ(entry["template"], "scale");
    before = ms;
  }
  EXPECT_GT(json["cpu_ms"].get<double>(), 0);
  const auto again = kiln({"prewarm", path("twelve.toml"), "--json"}).json();
  EXPECT_TRUE(again["slowest"].empty());
  EXPECT_LT(again["cpu_ms"].get<double>(), json["cpu_ms"].get<double>());
}

TEST_F(Prewarm, AFailureIsReportedWithItsFirstDiagnostic) {
  const auto json = kiln({"prewarm", plan("N = 2\n"), "--json"}).json();
  const std::string said = json["entries"][0]["error"]["diagnostic"];
  EXPECT_NE(said.find("two is refused"), std::string::npos) << said;
  EXPECT_EQ(said.find('\n'), std::string::npos);
}

TEST_F(Prewarm, AnEmptyPlanSaysSo) {
  write("empty.toml", "# nothing yet\n");
  const Finished r = kiln({"prewarm", path("empty.toml")});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("the plan is empty"), std::string::npos) << r.out;
  EXPECT_NE(kiln({"prewarm", path("empty.toml"), "--check"}).out.find("the plan is empty"),
            std::string::npos);
  EXPECT_EQ(kiln({"prewarm", path("empty.toml"), "--json"}).json()["total"], 0);
}

TEST_F(Prewarm, APlanMayComeThroughAPipe) {
  const std::string fifo = path("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  auto running = start({"prewarm", fifo});
  std::ofstream(fifo) << "[[prewarm]]\ntemplate = \"scale\"\n" << std::flush << "N = [1, 2]\n";
  const Finished r = running->wait();
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("2 of 2 specialisations"), std::string::npos) << r.out;

  const Finished nothing = kiln({"prewarm", "/dev/null"});
  EXPECT_EQ(nothing.status, 0) << nothing.err;
  EXPECT_NE(nothing.out.find("the plan is empty"), std::string::npos) << nothing.out;

  const Finished endless = kiln({"prewarm", "/dev/zero"});
  EXPECT_EQ(endless.status, 1);
  EXPECT_NE(endless.err.find("'/dev/zero': more than 67108864 bytes"), std::string::npos) << endless.err;
  EXPECT_EQ(kiln({"prewarm", path("templates")}).status, 1) << "a directory";
}

TEST_F(Prewarm, MemoryIsASize) {
  EXPECT_EQ(kiln({"prewarm", plan("N = 1\n"), "--memory", "2G"}).status, 0);
  const Finished r = kiln({"prewarm", plan("N = 1\n"), "--memory", "2X"});
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("'2X'"), std::string::npos) << r.err;
}

TEST_F(Prewarm, ACheckAsksTheLayersAndCreatesNothing) {
  const std::string file = plan("N = [1, 3]\n");
  EXPECT_EQ(kiln({"prewarm", file, "--layer", path("layer")}).status, 0);
  EXPECT_EQ(kiln({"prewarm", file, "--check"}).status, 3);
  EXPECT_EQ(kiln({"prewarm", file, "--check"}, {{"KILN_CACHE_LAYERS", path("layer")}}).status, 0);
  EXPECT_EQ(kiln({"prewarm", file, "--check", "--layer", path("layer")}).status, 0);
  EXPECT_FALSE(std::filesystem::exists(cache()));
}

TEST_F(Prewarm, AStarStandsForEveryMemberOfAFamily) {
  write("templates/family.cu", "template <int ROWS, int N> __global__ void family(int rows) {}\n");
  write("templates/family.toml",
        "format = 1\n[template]\nname = \"family\"\ninstantiate = \"family<{ROWS}, {N}>\"\n"
        "[param.ROWS]\nkind = \"int\"\nvalues = [8, 16, 64]\n"
        "[param.N]\nkind = \"int\"\nrange = [1, 9]\ndefault = 1\n"
        "[family]\nby = \"rows\"\nparameter = \"ROWS\"\n"
        "[[arg]]\nname = \"rows\"\ntype = \"i32\"\n[launch]\ngrid = [1]\nblock = [32]\n"
        "[[prewarm]]\nROWS = \"*\"\n");
  write("plan.toml", "[[prewarm]]\ntemplate = \"family\"\nROWS = [8, 64]\n");
  EXPECT_EQ(kiln({"prewarm", path("plan.toml")}).status, 0);
  write("plan.toml", "[[prewarm]]\ntemplate = \"family\"\nROWS = \"*\"\nN = 1\n");
  const Finished check = kiln({"prewarm", path("plan.toml"), "--check", "--json"});
  EXPECT_EQ(check.status, 3) << check.err;
  EXPECT_EQ(check.json()["covered"], 2);
  EXPECT_EQ(check.json()["missing"], 1);
  EXPECT_NE(kiln({"prewarm", path("plan.toml"), "--check"}).out.find("missing  family ROWS=16 N=1"),
            std::string::npos);
  EXPECT_EQ(kiln({"prewarm", path("plan.toml")}).status, 0);
  EXPECT_EQ(kiln({"prewarm", path("plan.toml"), "--check"}).status, 0);
  EXPECT_EQ(kiln({"why", "family", "ROWS=16", "--arch", "sm_90a", "--json"}).json()["outcome"], "disk");
  const Finished argument = kiln({"why", "family", "rows=9", "--arch", "sm_90a"});
  EXPECT_EQ(argument.status, 2);
  EXPECT_NE(argument.err.find("it is an argument of launches: rows picks ROWS: "
                              "8, 16, 64; 64 also for all above"),
            std::string::npos)
      << argument.err;

  // A bundle of a plan with a star has every member.
  EXPECT_EQ(kiln({"bundle", "export", path("members.kb"), path("plan.toml")}).status, 0);
  const Environment elsewhere = {{"KILN_CACHE_DIR", path("elsewhere")}};
  EXPECT_EQ(kiln({"bundle", "import", path("members.kb")}, elsewhere).status, 0);
  EXPECT_EQ(kiln({"prewarm", path("plan.toml"), "--check", "--json"}, elsewhere).json()["covered"], 3);
  const auto shown = kiln({"templates", "family", "--json"}).json();
  EXPECT_EQ(shown["family"], (nlohmann::json{{"by", "rows"}, {"parameter", "ROWS"}, {"edges", {8, 16, 64}}}));
  EXPECT_EQ(shown["prewarm"], 3);
  EXPECT_NE(kiln({"templates", "family"}).out.find("rows picks ROWS: 8, 16, 64; 64 also for all above"),
            std::string::npos);

  write("plan.toml", "[[prewarm]]\ntemplate = \"family\"\nROWS = 8\nN = \"*\"\n");
  const Finished ranged = kiln({"prewarm", path("plan.toml")});
  EXPECT_EQ(ranged.status, 2);
  EXPECT_NE(
      ranged.err.find("plan.toml:4: [[prewarm]] N: template 'family', parameter 'N': \"*\" stands for every "
                      "value of a parameter that lists its values, and this one allows 1 to 9"),
      std::string::npos)
      << ranged.err;
}

}  // namespace
}  // namespace kiln::test

// The timeline of a prewarm: the note beside the store, and the file of --trace.
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>

#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

using Json = nlohmann::json;

class PrewarmTrace : public KilnCompiler {
 protected:
  std::string plan(const std::string& values) {
    write("plan.toml", "[[prewarm]]\ntemplate = \"picky\"\nN = " + values + "\n");
    return path("plan.toml");
  }
  std::string note_file() const { return cache() + "/v1/prewarm.json"; }
  static Json read(const std::string& file) {
    const auto content = base::read_file(file);
    return content ? Json::parse(content->bytes, nullptr, false) : Json();
  }
  static mode_t mode_of(const std::string& file) {
    struct stat st {};
    return ::stat(file.c_str(), &st) == 0 ? st.st_mode & 07777 : 0;
  }
};

/// Both ends of a span are rounded to a nanosecond, separately. In microseconds.
constexpr double kRounding = 0.002;

TEST_F(PrewarmTrace, AddsUpToTheReport) {
  const Json said =
      kiln({"prewarm", plan("[1, 3, 4, 5, 6, 7]"), "-j2", "--json", "--trace", path("t.json")}).json();
  const Json trace = read(path("t.json"));
  ASSERT_TRUE(trace.is_object());
  std::map<int, std::vector<std::pair<double, double>>> lanes, phases;
  std::set<std::string> keys;
  double compile_ms = 0, phase_us = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double begin = event["ts"], end = begin + event["dur"].get<double>();
    const int lane = event["tid"];
    EXPECT_GE(begin, 0);
    EXPECT_LE(end, said["wall_ms"].get<double>() * 1000 + kRounding);
    if (event["cat"] == "phase") {
      phases[lane].push_back({begin, end});
      phase_us += end - begin;
      continue;
    }
    lanes[lane].push_back({begin, end});
    compile_ms += event["args"]["compile_ms"].get<double>();
    keys.insert(event["args"]["key"].get<std::string>());
  }
  double expected = 0, expected_phases = 0;
  for (const Json& entry : said["entries"]) {
    expected += entry["compile_ms"].get<double>();
    for (const auto& [name, ms] : entry["phases"].items()) expected_phases += ms.get<double>();
    EXPECT_TRUE(keys.contains(entry["key"].get<std::string>()));
  }
  EXPECT_EQ(keys.size(), 6u);
  EXPECT_NEAR(compile_ms, expected, 1e-6);
  EXPECT_NEAR(phase_us / 1000, expected_phases, 0.001 * expected_phases);
  EXPECT_LE(lanes.size(), 2u);
  for (auto* events : {&lanes, &phases}) {
    for (auto& [lane, spans] : *events) {
      std::sort(spans.begin(), spans.end());
      for (std::size_t i = 1; i < spans.size(); ++i)
        EXPECT_LE(spans[i - 1].second, spans[i].first + kRounding) << "lane " << lane << ", event " << i;
    }
  }
}

TEST_F(PrewarmTrace, TheNoteSaysWhatTheReportSaid) {
  const Json said = kiln({"prewarm", plan("[1, 2, 3]"), "--keep-going", "--json"}).json();
  const Json note = read(note_file());
  ASSERT_TRUE(note.is_object());
  EXPECT_EQ(mode_of(note_file()), 0600u);
  for (const char* name : {"total", "compiled", "failed", "from_disk", "waited", "not_started", "jobs"})
    EXPECT_EQ(note[name], said[name]) << name;
  ASSERT_EQ(note["tasks"].size(), 3u);
  EXPECT_EQ(std::count_if(note["tasks"].begin(), note["tasks"].end(),
                          [](const Json& t) { return t["outcome"] == "failed"; }),
            1);
  const Json report = kiln({"report", path("page.html"), "--json"}).json();
  EXPECT_EQ(report["prewarm_tasks"], 3);
  EXPECT_EQ(report["prewarm_ignored"], nullptr);
}

TEST_F(PrewarmTrace, ARunThatFindsEverythingLeavesTheNoteOfTheOneThatMadeIt) {
  ASSERT_EQ(kiln({"prewarm", plan("[1, 3]")}).status, 0);
  const Json first = read(note_file());
  ASSERT_EQ(first["compiled"], 2);
  ASSERT_EQ(kiln({"prewarm", plan("[1, 3]")}).status, 0);
  EXPECT_EQ(read(note_file()), first);
  ASSERT_EQ(kiln({"prewarm", plan("[1, 3, 4]")}).status, 0);
  EXPECT_EQ(read(note_file())["compiled"], 1);
  EXPECT_EQ(read(note_file())["from_disk"], 2);
}

TEST_F(PrewarmTrace, ACheckWritesNeither) {
  EXPECT_EQ(kiln({"prewarm", plan("[1]"), "--check"}).status, 3);
  EXPECT_TRUE(read(note_file()).is_null());
  const Finished both = kiln({"prewarm", plan("[1]"), "--check", "--trace", path("t.json")});
  EXPECT_EQ(both.status, 2) << both.err;
  EXPECT_TRUE(read(path("t.json")).is_null());
}

TEST_F(PrewarmTrace, ALayerGetsNoNote) {
  ASSERT_EQ(kiln({"prewarm", plan("[1]"), "--layer", path("layer"), "--trace", path("t.json")}).status, 0);
  EXPECT_TRUE(read(path("layer") + "/v1/prewarm.json").is_null());
  EXPECT_TRUE(read(note_file()).is_null());
  EXPECT_FALSE(read(path("t.json")).is_null());
}

TEST_F(PrewarmTrace, ANoteThatCannotBeWrittenFailsNothing) {
  ASSERT_EQ(kiln({"compile", "scale", "N=1"}).status, 0);
  ASSERT_EQ(::mkdir(note_file().c_str(), 0700), 0);  // rename cannot replace a directory
  const Finished done = kiln({"prewarm", plan("[1, 3]")});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(done.err, "");
  EXPECT_EQ(kiln({"report", path("page.html"), "--json"}).json()["prewarm_ignored"], "it is no regular file");
}

TEST_F(PrewarmTrace, ATraceThatCannotBeWrittenStopsBeforeAnythingIsCompiled) {
  const Finished nowhere = kiln({"prewarm", plan("[1]"), "--trace", path("no/such/t.json"), "--json"});
  EXPECT_EQ(nowhere.status, 1);
  EXPECT_EQ(nowhere.json()["error"]["code"], "io");
  EXPECT_EQ(kiln({"prewarm", plan("[1]"), "--trace", "-"}).status, 2);
  EXPECT_EQ(kiln({"ls", "--json"}).json()["count"], 0);
}

TEST_F(PrewarmTrace, ATraceThatIsLostAtTheEndIsAnErrorOfItsOwn) {
  const Finished done = kiln({"prewarm", plan("[1]"), "--trace", "/dev/full", "--json"});
  EXPECT_EQ(done.status, 1);
  EXPECT_EQ(done.json()["compiled"], 1);
  EXPECT_NE(done.err.find("the timeline could not be written"), std::string::npos) << done.err;
}

}  // namespace
}  // namespace kiln::test

// kiln report, and the note that a prewarm leaves for it.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <regex>

#include "compile/key/facts.hpp"
#include "tools/store_command.hpp"

namespace kiln::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// The text between the tags of the data block.
std::string data_text(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const std::size_t from = page.find(begin);
  if (from == page.npos) return {};
  const std::size_t start = from + begin.size();
  return page.substr(start, page.find("</script>", start) - start);
}

/// Expects that the page requests nothing outside itself, and is not cut short.
void expect_self_contained(const std::string& page) {
  EXPECT_EQ(page.rfind("<!doctype html>\n<html", 0), 0u);
  EXPECT_EQ(page.substr(page.size() - 8), "</html>\n");
  static const std::regex outside(
      R"(https?://|\bsrc\s*=|\bhref\s*=\s*"[^#]|url\((?!#)|@import|<link|<iframe|<img)");
  std::smatch match;
  EXPECT_FALSE(std::regex_search(page, match, outside)) << match.str() << match.suffix().str().substr(0, 80);
  EXPECT_EQ(page.find("{{"), page.npos) << "a slot was not filled";
  const auto count = [&](const std::string& text) {
    std::size_t out = 0;
    for (std::size_t at = 0; (at = page.find(text, at)) != page.npos; ++at) ++out;
    return out;
  };
  EXPECT_EQ(count("<html"), 1u);
  EXPECT_EQ(count("<style>"), 1u);
  EXPECT_EQ(count("<script"), 2u);  // the data, and the script that draws it
  EXPECT_EQ(count("</script"), 2u);
  EXPECT_EQ(count(" style="), 0u);  // the policy would ignore such an attribute
  EXPECT_EQ(count("{{"), 0u);
}

class Report : public StoreCommand {
 protected:
  std::string page_file() const { return path("page.html"); }
  std::string page() const { return base::read_file(page_file()).value_or(base::FileContent{}).bytes; }
  Json data() const { return Json::parse(data_text(page()), nullptr, false); }
  std::string note_file() const { return cache() + "/v1/prewarm.json"; }
  Finished report(const Environment& more = {}) { return kiln({"report", page_file(), "--json"}, more); }

  static compile::Facts facts_of(std::uint32_t number, const std::string& unit, double compile_ms) {
    compile::Facts out;
    out.unit = unit;
    out.parameters = {{"T", "bf16"}, {"H", std::to_string(number)}};
    out.arch = number % 3 ? "sm_90a" : "sm_80";
    out.registers = 32 + number % 200;
    out.compile_ms = compile_ms;
    out.frontend_ms = compile_ms / 2, out.nvvm_ms = compile_ms / 4, out.ptxas_ms = compile_ms / 5;
    out.compiler_version = "13.0";
    return out;
  }
  static void put(Store& store, std::uint32_t number, const std::string& unit, double compile_ms,
                  std::size_t bytes = 3000) {
    cache::Record record = cache::test::record_of(number, bytes);
    record.facts = compile::encode(facts_of(number, unit, compile_ms));
    ASSERT_EQ(store.put(record).put, cache::Put::stored);
  }
  void fill_units(std::uint32_t count, const std::vector<std::string>& units, double compile_ms = 40) const {
    const auto store = open();
    for (std::uint32_t i = 0; i < count; ++i) put(*store, i, units[i % units.size()], compile_ms + i % 7);
  }
  /// A note like that of `kiln prewarm`, with `count` tasks on two lanes.
  static Json note_of(std::size_t count) {
    Json out{{"format", "kiln.prewarm-run/1"},
             {"version", "0.1.0"},
             {"started_ms", 1.7e12},
             {"wall_ms", 5.0 * static_cast<double>(count) + 10},
             {"cpu_ms", nullptr},
             {"jobs", 2},
             {"total", count},
             {"from_disk", 0},
             {"compiled", count},
             {"waited", 0},
             {"failed", 0},
             {"not_started", 0},
             {"interrupted", false},
             {"left_out", 0},
             {"tasks", Json::array()}};
    for (std::size_t i = 0; i < count; ++i) {
      out["tasks"].push_back({{"template", "scale"},
                              {"params", "N=" + std::to_string(i)},
                              {"arch", "sm_90a"},
                              {"key", ""},
                              {"outcome", "compiled"},
                              {"lane", i % 2},
                              {"start_ms", 5.0 * static_cast<double>(i)},
                              {"total_ms", 9.0 + static_cast<double>(i % 10) / 10},
                              {"compile_ms", 8.0},
                              {"frontend_ms", 4.0},
                              {"nvvm_ms", 2.0},
                              {"ptxas_ms", 1.0}});
    }
    return out;
  }
};

TEST_F(Report, IsOnePageThatAsksForNothingElse) {
  fill_units(12, {"rms_norm", "softmax"});
  const Finished done = report();
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(done.json()["schema"], "kiln.report/1");
  EXPECT_EQ(done.json()["bytes"], page().size());
  expect_self_contained(page());
  EXPECT_FALSE(data().is_discarded());
}

TEST_F(Report, ItsPolicyNamesTheDigestsOfItsStyleAndScript) {
  report();
  const std::regex policy(
      "content=\"default-src 'none'; style-src 'sha256-([A-Za-z0-9+/]{43}=)'; "
      "script-src 'sha256-([A-Za-z0-9+/]{43}=)'; base-uri 'none'; form-action 'none'\"");
  const std::string text = page();
  std::smatch match;
  ASSERT_TRUE(std::regex_search(text, match, policy));
  EXPECT_NE(match[1].str(), match[2].str());
  EXPECT_EQ(text.find("unsafe-inline"), text.npos);
}

TEST_F(Report, ItsNumbersAreThoseOfStats) {
  fill_units(30, {"rms_norm", "softmax"});
  const Json said = report().json(), stats = kiln({"stats", "--json"}).json(), drawn = data();
  for (const char* name : {"entries", "cubin_bytes"}) {
    EXPECT_EQ(said[name], stats[name]) << name;
    EXPECT_EQ(drawn["totals"][name], stats[name]) << name;
  }
  for (const char* name : {"live_bytes", "file_bytes", "cap_bytes"})
    EXPECT_EQ(drawn["totals"][name], stats[name]) << name;
  EXPECT_DOUBLE_EQ(said["compile_ms"].get<double>(), stats["compile_ms"].get<double>());
  EXPECT_EQ(said["templates"], stats["by_template"].size());
  EXPECT_EQ(said["archs"], stats["by_arch"].size());
  std::map<std::string, std::uint64_t> bytes;
  for (const Json& group : drawn["groups"])
    bytes[group["template"]] += group["stored_bytes"].get<std::uint64_t>();
  for (const auto& [name, sum] : stats["by_template"].items())
    EXPECT_EQ(bytes[name], sum["stored_bytes"].get<std::uint64_t>()) << name;
  for (const char* group : {"hits", "misses", "puts"})
    for (const auto& [name, value] : stats["lifetime"][group].items())
      EXPECT_EQ(drawn["lifetime"][group][name], value) << group << '.' << name;
}

TEST_F(Report, NamesCannotLeaveTheirPlace) {
  const std::string name = "x</script><script>alert(1)</script><!--&\xE2\x80\xA8'\"{{data}}";
  {
    const auto store = open();
    put(*store, 1, name, 10);
    put(*store, 2, "plain", 10);
  }
  ASSERT_EQ(report().status, 0);
  const std::string text = page(), block = data_text(text);
  EXPECT_EQ(block.find_first_of("<>&"), block.npos);
  EXPECT_EQ(block.find("\xE2\x80\xA8"), block.npos);
  EXPECT_EQ(text.find("<script>alert"), text.npos);
  const Json parsed = Json::parse(block);
  bool found = false;
  for (const Json& group : parsed["groups"]) found |= group["template"] == name;
  EXPECT_TRUE(found);
  EXPECT_NE(text.find("x&lt;/script&gt;&lt;script&gt;alert(1)"), text.npos);
}

TEST_F(Report, AnEmptyStoreIsSaidToBeEmpty) {
  const Finished done = report();
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(done.json()["entries"], 0);
  EXPECT_EQ(done.json()["prewarm_tasks"], nullptr);
  EXPECT_NE(page().find("Nothing is cached in " + cache()), std::string::npos);
  EXPECT_NE(page().find("No prewarm that compiled something is noted"), std::string::npos);
  EXPECT_EQ(data()["histogram"], nullptr);
  EXPECT_EQ(data()["totals"]["hit_rate"], nullptr);
  EXPECT_FALSE(exists(cache())) << "a report creates no store";
  expect_self_contained(page());
}

TEST_F(Report, OneEntryIsEnough) {
  fill_units(1, {"rms_norm"});
  ASSERT_EQ(report().status, 0);
  EXPECT_EQ(data()["groups"].size(), 1u);
  std::uint64_t counted = 0;
  const Json bins = data()["histogram"]["whole"]["bins"];
  for (const Json& bin : bins) counted += bin.get<std::uint64_t>();
  EXPECT_EQ(counted, 1u);
  EXPECT_DOUBLE_EQ(data()["histogram"]["whole"]["median_ms"].get<double>(), 40);
}

TEST_F(Report, TimesThatWereNotRecordedAreNotDrawnAsZeros) {
  {
    const auto store = open();
    for (std::uint32_t i = 0; i < 4; ++i) put(*store, i, "imported", 0);
  }
  Finished done = report();
  EXPECT_EQ(done.json()["timed"], 0);
  EXPECT_EQ(data()["histogram"], nullptr);
  EXPECT_NE(page().find("<dd>not recorded"), std::string::npos);
  EXPECT_NE(page().find("Not recorded: every entry here came from a bundle"), std::string::npos);
  {
    const auto store = open();
    put(*store, 9, "made_here", 25);
  }
  done = report();
  EXPECT_EQ(done.json()["timed"], 1);
  EXPECT_NE(page().find("recorded for 1 of 5"), std::string::npos);
  EXPECT_NE(page().find("<span class=\"quiet\">not recorded</span>"), std::string::npos);
}

TEST_F(Report, ManyEntriesMakeNoLargePage) {
  std::vector<std::string> units;
  for (int i = 0; i < 400; ++i) units.push_back("template_with_a_long_name_" + std::to_string(i));
  {
    const auto store = open();
    for (std::uint32_t i = 0; i < 420; ++i) put(*store, i, units[i % units.size()], 30 + i % 90, 200);
  }
  base::write_file(note_file(), note_of(20'000).dump());
  const Finished done = report();
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(done.json()["entries"], 420);
  EXPECT_EQ(done.json()["prewarm_tasks"], 20'000);
  // Entries only add to sums: groups, rows and bars are bounded.
  const Json drawn = data();
  EXPECT_EQ(drawn["groups"].size(), 301u);
  EXPECT_LE(drawn["prewarm"]["bars"].size(), 3010u);  // 1500 separate bars, and bars for the time between
  EXPECT_LT(page().size(), std::size_t{1} << 20);
  std::uint64_t entries = 0, tasks = 0;
  for (const Json& group : drawn["groups"]) entries += group["entries"].get<std::uint64_t>();
  for (const Json& bar : drawn["prewarm"]["bars"]) tasks += bar[8].get<std::uint64_t>();
  EXPECT_EQ(entries, 420u);
  EXPECT_EQ(tasks, 20'000u);
}

TEST_F(Report, AnIdleLaneIsSeenToBeIdle) {
  fill_units(1, {"rms_norm"});
  Json note = note_of(4000);  // the second lane pauses for half of the run
  for (std::size_t i = 0; i < note["tasks"].size(); ++i) {
    Json& task = note["tasks"][i];
    task["total_ms"] = 9;
    if (i % 2 && i > 1000) task["start_ms"] = task["start_ms"].get<double>() + 10'000;
  }
  note["wall_ms"] = 30'100;
  base::write_file(note_file(), note.dump());
  ASSERT_EQ(report().status, 0);
  const Json drawn = data();
  double before = 0, pause = 0;
  for (const Json& bar : drawn["prewarm"]["bars"]) {
    if (bar[0] != 1) continue;
    pause = std::max(pause, bar[1].get<double>() - before);
    before = bar[2];
  }
  EXPECT_NEAR(pause, 10'001, 1);
}

TEST_F(Report, NoOrderOfTasksMakesManyBars) {
  fill_units(1, {"rms_norm"});
  Json note = note_of(20'000);
  for (std::size_t i = 0; i < note["tasks"].size(); ++i)
    note["tasks"][i]["template"] = "t" + std::to_string(i / 2 % 3);  // consecutive tasks of a lane differ
  base::write_file(note_file(), note.dump());
  ASSERT_EQ(report().status, 0);
  const Json drawn = data();
  EXPECT_LE(drawn["prewarm"]["bars"].size(), 6000u);
  std::uint64_t tasks = 0;
  for (const Json& bar : drawn["prewarm"]["bars"]) tasks += bar[8].get<std::uint64_t>();
  EXPECT_EQ(tasks, 20'000u);
}

TEST_F(Report, ADamagedEntryIsCountedAndSaid) {
  {
    const auto store = open();
    put(*store, 1, "broken_unit", 10);
    put(*store, 2, "whole_unit", 10);
  }
  std::string bytes = contents();
  const std::size_t at = bytes.find("broken_unit");
  ASSERT_NE(at, std::string::npos);
  bytes[at] ^= 1;
  overwrite(bytes);
  const Finished done = report();
  EXPECT_EQ(done.status, 4);
  EXPECT_EQ(done.json()["error"]["code"], "damaged");
  EXPECT_EQ(done.json()["bytes"], page().size());
  EXPECT_NE(page().find("1 entry is damaged"), std::string::npos);
  EXPECT_NE(done.err.find("1 entry is damaged"), std::string::npos) << done.err;
}

TEST_F(Report, ADamagedFileStillHasAPage) {
  fill_units(3, {"rms_norm"});
  overwrite(std::string(contents().size(), 'x'));
  const Finished done = report();
  EXPECT_EQ(done.status, 4);
  EXPECT_EQ(done.json()["error"]["code"], "damaged");
  expect_self_contained(page());
  EXPECT_NE(page().find("The store&#39;s file is damaged"), std::string::npos);
}

TEST_F(Report, AReadOnlyStoreIsReadAndLeftAlone) {
  fill_units(3, {"rms_norm"});
  const auto mode = [&](mode_t directory, mode_t file) {
    ::chmod(data_file().c_str(), file);
    ::chmod((cache() + "/v1").c_str(), directory);
    ::chmod(cache().c_str(), directory);
  };
  const std::string before = contents();
  mode(0500, 0400);
  const Finished done = report();
  mode(0700, 0600);
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(done.json()["entries"], 3);
  EXPECT_EQ(contents(), before);
}

TEST_F(Report, TheFileMayBeStdoutAPipeOrALink) {
  fill_units(2, {"rms_norm"});
  const Finished out = kiln({"report", "-"});
  EXPECT_EQ(out.status, 0) << out.err;
  expect_self_contained(out.out);
  const Finished both = kiln({"report", "-", "--json"});
  EXPECT_EQ(both.status, 2);
  EXPECT_EQ(both.json()["error"]["code"], "invalid_argument");
  write("target.html", "old");
  ASSERT_EQ(::symlink(path("target.html").c_str(), page_file().c_str()), 0);
  EXPECT_EQ(report().status, 0);
  EXPECT_TRUE(fs::is_symlink(page_file()));
  EXPECT_EQ(kiln({"report", "/dev/null"}).status, 0);
  const Finished nowhere = kiln({"report", path("no/such/page.html"), "--json"});
  EXPECT_EQ(nowhere.status, 1);
  EXPECT_EQ(nowhere.json()["error"]["code"], "io");
  EXPECT_EQ(kiln({"report"}).status, 2);
}

TEST_F(Report, ANoteThatIsNoneIsIgnoredAndSaid) {
  fill_units(2, {"rms_norm"});
  const auto ignored = [&](const std::string& why) {
    const Finished done = report();
    EXPECT_EQ(done.status, 0) << done.err;
    EXPECT_EQ(done.json()["prewarm_tasks"], nullptr) << why;
    EXPECT_NE(done.json()["prewarm_ignored"], nullptr) << why;
    EXPECT_EQ(data()["prewarm"], nullptr) << why;
    EXPECT_NE(page().find("The note of the last prewarm is ignored: "), std::string::npos) << why;
    expect_self_contained(page());
  };
  const Json good = note_of(4);
  const auto with = [&](const char* field, const Json& value) {
    Json out = good;
    out[field] = value;
    return out.dump();
  };
  const auto with_task = [&](const char* field, const Json& value) {
    Json out = good;
    out["tasks"][1][field] = value;
    return out.dump();
  };
  Json without = good;
  without["tasks"][2].erase("lane");
  Json too_many = good;
  too_many["tasks"] = Json(20'001, good["tasks"][0]);
  const std::string bad[] = {"",
                             "{",
                             "[]",
                             "null",
                             good.dump().substr(0, 200),
                             std::string(1 << 20, '['),
                             with("format", "kiln.prewarm-run/2"),
                             with("wall_ms", -1),
                             with("wall_ms", "long"),
                             with("jobs", 1e6),
                             with("compiled", -3),
                             with("interrupted", 1),
                             with("tasks", 7),
                             with("tasks", Json::array({Json::array({1, 2})})),
                             with_task("lane", 5000),
                             with_task("lane", 0.5),
                             with_task("start_ms", 1e300),
                             with_task("template", std::string(5000, 'x')),
                             with_task("template", Json::array({"deep"})),
                             with_task("outcome", nullptr),
                             without.dump(),
                             too_many.dump(),
                             "\xff\xfe" + good.dump()};
  for (const std::string& text : bad) {
    base::write_file(note_file(), text);
    ignored(text.substr(0, 60));
  }
  base::write_file(note_file(), good.dump());
  EXPECT_EQ(report().json()["prewarm_tasks"], 4);
  EXPECT_EQ(data()["prewarm"]["bars"].size(), 4u);
}

TEST_F(Report, ANoteThatIsNoFileOfBoundedSizeIsNotRead) {
  fill_units(2, {"rms_norm"});
  base::write_file(path("elsewhere.json"), note_of(3).dump());
  ASSERT_EQ(::symlink(path("elsewhere.json").c_str(), note_file().c_str()), 0);
  EXPECT_EQ(report().json()["prewarm_ignored"], "it is no regular file");
  ::unlink(note_file().c_str());
  ASSERT_EQ(::mkfifo(note_file().c_str(), 0600), 0);
  EXPECT_EQ(report().json()["prewarm_ignored"], "it is no regular file");
  ::unlink(note_file().c_str());
  base::write_file(note_file(), "");
  ASSERT_EQ(::truncate(note_file().c_str(), off_t{1} << 34), 0);  // a sparse file
  EXPECT_EQ(report().json()["prewarm_ignored"], "File too large");
}

TEST_F(Report, ANoteIsNoPartOfTheStore) {
  fill_units(3, {"rms_norm"});
  base::write_file(note_file(), "{ broken");
  EXPECT_EQ(kiln({"verify"}).status, 0);
  EXPECT_EQ(kiln({"gc"}).status, 0);
  EXPECT_EQ(kiln({"clear", "--yes"}).status, 0);
  EXPECT_EQ(kiln({"ls", "--json"}).json()["count"], 0);
  EXPECT_EQ(report().status, 0);
}

/// The page in a browser: the document after its script ran, and the console.
class ReportInABrowser : public Report {
 protected:
  void SetUp() override {
    for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
      if (std::system(("command -v " + std::string(name) + " > /dev/null 2>&1").c_str()) == 0)
        browser_ = name;
    }
    if (browser_.empty()) GTEST_SKIP() << "no chromium found on this machine: the page is not drawn";
  }
  /// REQUIRES: a page was written.
  std::string document(const std::string& fragment = {}) {
    const std::string command = "HOME='" + path("home") + "' timeout 120 " + browser_ +
                                " --headless=new --no-sandbox --disable-gpu --user-data-dir='" +
                                path("profile") + "' --enable-logging=stderr --v=0 --dump-dom 'file://" +
                                page_file() + fragment + "' > '" + path("dom") + "' 2> '" + path("log") + "'";
    EXPECT_EQ(std::system(command.c_str()), 0);
    const auto log = base::read_file(path("log"));
    EXPECT_TRUE(log && log->bytes.find("CONSOLE") == std::string::npos) << (log ? log->bytes : "no log");
    return base::read_file(path("dom")).value_or(base::FileContent{}).bytes;
  }
  static std::size_t count(const std::string& text, const std::string& of) {
    std::size_t out = 0;
    for (std::size_t at = 0; (at = text.find(of, at)) != text.npos; ++at) ++out;
    return out;
  }

 private:
  std::string browser_;
};

TEST_F(ReportInABrowser, DrawsEveryChartWithoutAnError) {
  fill_units(24, {"rms_norm", "soft\"max<&>", "act_and_mul", "softmax"});
  base::write_file(note_file(), note_of(10).dump());
  ASSERT_EQ(report().status, 0);
  const std::string drawn = document("#theme=dark");
  EXPECT_NE(drawn.find("<html lang=\"en\" data-theme=\"dark\">"), drawn.npos);
  EXPECT_EQ(count(drawn, "class=\"hit opens\""), 4u + 8u) << "templates, and their archs";
  EXPECT_GE(count(drawn, "class=\"series tile\""), 4u);
  EXPECT_EQ(count(drawn, ", in the compiler 8.0 ms: Front end 4.0 ms, NVVM 2.0 ms, ptxas 1.0 ms\""), 10u);
  EXPECT_GE(count(drawn, "<th scope=\"col\"><button type=\"button\">"), 4u);
}

TEST_F(ReportInABrowser, AnEmptyStoreDrawsNothingAndFailsNowhere) {
  ASSERT_EQ(report().status, 0);
  EXPECT_EQ(count(document(), "class=\"hit"), 0u);
}

}  // namespace
}  // namespace kiln::test

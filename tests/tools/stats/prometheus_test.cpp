// kiln stats --prometheus: the text exposition format, and the file for the node exporter.
#include <sched.h>
#include <sys/mount.h>

#include <cstdlib>
#include <regex>
#include <set>

#include "cache/store/tally.hpp"
#include "tests/support/other_user.hpp"
#include "tools/store_command.hpp"

namespace kiln::test {
namespace {

/// Reads format 0.0.4 like a strict reader: value by "name{labels}". Fails the test for
/// anything that the format does not allow.
std::map<std::string, std::string> parse(const std::string& text) {
  static const std::regex head("# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.*)");
  static const std::regex sample(
      R"re(([a-zA-Z_:][a-zA-Z0-9_:]*)(\{([a-zA-Z_][a-zA-Z0-9_]*="(\\[\\n"]|[^\\"])*"(,(?=[a-zA-Z_]))?)*\})? ([0-9]+(\.[0-9]+)?(e[-+][0-9]+)?))re");
  std::map<std::string, std::string> out;
  std::set<std::string> helped, typed;
  std::string current, type;
  EXPECT_TRUE(text.ends_with('\n'));
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    if (std::regex_match(line, match, head)) {
      const std::string name = match[2];
      if (match[1] == "HELP") {
        EXPECT_TRUE(helped.insert(name).second) << "twice: " << line;
        EXPECT_NE(match[3], "");
      } else {
        EXPECT_TRUE(helped.contains(name) && typed.insert(name).second) << line;
        type = match[3];
        EXPECT_TRUE(type == "counter" || type == "gauge") << line;
        EXPECT_EQ(type == "counter", name.ends_with("_total")) << line;
        current = name;
      }
      continue;
    }
    if (!std::regex_match(line, match, sample)) {
      ADD_FAILURE() << "not in the grammar: " << line;
      continue;
    }
    EXPECT_EQ(match[1], current) << "a metric's samples stand together";
    EXPECT_TRUE(out.emplace(match[1].str() + match[2].str(), match[6]).second) << "twice: " << line;
  }
  EXPECT_EQ(helped, typed);
  return out;
}

class Prometheus : public StoreCommand {
 protected:
  void SetUp() override {
    fill(2);
    std::array<std::uint64_t, cache::kTallyValues> counts{};
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = i + 1;
    ASSERT_TRUE(cache::Tally(cache() + "/v1").add(counts));
  }
  std::string text() {
    const Finished r = kiln({"stats", "--prometheus"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.err, "");
    return r.out;
  }
};

TEST_F(Prometheus, EveryCounterIsAMetricInBaseUnits) {
  auto values = parse(text());
  EXPECT_EQ(values["kiln_cache_hits_total{level=\"memory\"}"], "1");
  EXPECT_EQ(values["kiln_cache_hits_total{level=\"layer\"}"], "2");
  EXPECT_EQ(values["kiln_cache_hits_total{level=\"disk\"}"], "3");
  EXPECT_EQ(values["kiln_cache_hits_total{level=\"foreign_toolchain\"}"], "4");
  EXPECT_EQ(values["kiln_cache_misses_total{reason=\"absent\"}"], "5");
  EXPECT_EQ(values["kiln_cache_misses_total{reason=\"no_store\"}"], "10");
  EXPECT_EQ(values["kiln_compiles_total"], "11");
  EXPECT_EQ(values["kiln_compile_failures_total"], "12");
  EXPECT_EQ(values["kiln_compile_seconds_total"], "1.4e-05");
  EXPECT_EQ(values["kiln_compile_seconds_saved_total"], "3.1e-05");
  EXPECT_EQ(values["kiln_waits_total"], "15");
  EXPECT_EQ(values["kiln_puts_total{result=\"stored\"}"], "16");
  EXPECT_EQ(values["kiln_puts_total{result=\"queue_full\"}"], "22");
  EXPECT_EQ(values["kiln_evictions_total"], "26");
  EXPECT_EQ(values["kiln_compiling"], "0");
  EXPECT_EQ(values["kiln_waiting{for=\"flight\"}"], "0");
  const auto json = kiln({"stats", "--json"}).json();
  EXPECT_EQ(values["kiln_store_bytes{kind=\"live\"}"], json["live_bytes"].dump());
  EXPECT_EQ(values["kiln_store_bytes{kind=\"file\"}"], json["file_bytes"].dump());
  EXPECT_EQ(values["kiln_store_bytes{kind=\"cap\"}"], json["cap_bytes"].dump());
}

TEST_F(Prometheus, LabelsAreEscapedAndStandOnEverySample) {
  const std::string odd = path("a\"b\\c\nd");
  const Finished r =
      kiln({"stats", "--prometheus", "--label", "cluster=a\"b", "--label", "x=", "--cache-dir", odd});
  EXPECT_EQ(r.status, 0) << r.err;
  auto values = parse(r.out);
  for (const auto& [name, value] : values)
    EXPECT_NE(name.find("{cluster=\"a\\\"b\",x=\"\""), std::string::npos) << name;
  EXPECT_NE(r.out.find("a\\\"b\\\\c\\nd"), std::string::npos) << r.out;
  for (const char* bad : {"1a=b", "a-b=c", "ab", "__x=y", "=y"})
    EXPECT_EQ(kiln({"stats", "--prometheus", "--label", bad}).status, 2) << bad;
}

TEST_F(Prometheus, ALabelThatASampleHasAlreadyIsRefused) {
  std::set<std::string> own;
  static const std::regex label("[{,]([a-z_]+)=\"");
  const std::string all =
      text() + "{template=\"\",arch=\"\"}";  // the entries of this store have another version
  for (std::sregex_iterator it(all.begin(), all.end(), label), end; it != end; ++it) own.insert((*it)[1]);
  EXPECT_GE(own.size(), 8u);
  for (const std::string& name : own)
    EXPECT_EQ(kiln({"stats", "--prometheus", "--label", name + "=x"}).status, 2) << name;
  EXPECT_EQ(kiln({"stats", "--prometheus", "--label", "a=1", "--label", "a=2"}).status, 2);
}

TEST_F(Prometheus, BehindASymlinkTheFileIsReplacedAndTheLinkStays) {
  write("target.prom", "old");
  std::filesystem::create_hard_link(path("target.prom"), path("reader"));  // like an open reader
  std::filesystem::create_symlink("target.prom", path("kiln.prom"));
  const Finished r = kiln({"stats", "--prometheus", path("kiln.prom")});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(std::filesystem::is_symlink(path("kiln.prom")));
  EXPECT_EQ(base::read_file(path("target.prom"))->bytes.substr(0, 7), "# HELP ");
  EXPECT_EQ(base::read_file(path("reader"))->bytes, "old");
}

TEST_F(Prometheus, SomebodyElsesSymlinkIsNotFollowed) {
  KILN_NEEDS_ROOT();
  write("victim", "precious");
  std::filesystem::create_symlink(path("victim"), path("kiln.prom"));
  ASSERT_EQ(::lchown(path("kiln.prom").c_str(), kiln::testing::kStranger, kiln::testing::kStranger), 0);
  const Finished r = kiln({"stats", "--prometheus", path("kiln.prom")});
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.err.find("a symlink of uid"), std::string::npos) << r.err;
  EXPECT_EQ(base::read_file(path("victim"))->bytes, "precious");
}

TEST_F(Prometheus, AFileIsReplacedAtOnceAndReadableForTheExporter) {
  const std::string file = path("kiln.prom");
  write("kiln.prom", "old");
  const Finished r = kiln({"stats", "--prometheus", file});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.out + r.err, "");
  EXPECT_EQ(kiln::testing::mode_of(file), "0644");
  EXPECT_EQ(base::read_file(file)->bytes.substr(0, 7), "# HELP ");
  EXPECT_EQ(parse(base::read_file(file)->bytes).count("kiln_compiles_total"), 1u);
  for (const auto& entry : std::filesystem::directory_iterator(path("")))
    EXPECT_EQ(entry.path().filename().string().find("kiln.prom."), std::string::npos) << entry.path();
}

TEST_F(Prometheus, ANameThatTheExporterIgnoresIsAWarning) {
  const Finished r = kiln({"stats", "--prometheus", path("kiln.txt")});
  EXPECT_EQ(r.status, 0);
  EXPECT_NE(r.err.find("does not end in .prom"), std::string::npos) << r.err;
  EXPECT_TRUE(exists(path("kiln.txt")));
}

TEST_F(Prometheus, AFullDiskKeepsTheFormerFile) {
  KILN_NEEDS_ROOT();
  ASSERT_EQ(::mkdir(path("full").c_str(), 0755), 0);
  const std::string answer = kiln::testing::as_user(0, [&]() -> std::string {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("kiln", path("full").c_str(), "tmpfs", 0, "size=8k") != 0)
      return "no mount";
    write("full/kiln.prom", "former");
    const base::Fd rest(::open(path("full/rest").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    while (::write(rest.get(), "x", 1) == 1) {
    }
    const Finished r = kiln({"stats", "--prometheus", path("full/kiln.prom")});
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path("full"))) files += entry.exists();
    return std::to_string(r.status) + ' ' + base::read_file(path("full/kiln.prom"))->bytes + ' ' +
           std::to_string(files) + ' ' + r.err;
  });
  if (answer == "no mount") GTEST_SKIP() << "a file system cannot be mounted here";
  EXPECT_EQ(answer.rfind("1 former 2 ", 0), 0u) << answer;
  EXPECT_NE(answer.find("No space left on device"), std::string::npos) << answer;
}

TEST_F(Prometheus, ADamagedStoreIsExitFourAndKeepsTheFormerFile) {
  write("kiln.prom", "former");
  overwrite(std::string(8192, 'x'));
  const Finished r = kiln({"stats", "--prometheus", path("kiln.prom")});
  EXPECT_EQ(r.status, 4);
  EXPECT_NE(r.err.find("kiln verify"), std::string::npos) << r.err;
  EXPECT_EQ(base::read_file(path("kiln.prom"))->bytes, "former");
}

TEST_F(Prometheus, AnEmptyCacheHasCountersOfZeroAndIsNotMade) {
  const Finished r = kiln({"stats", "--prometheus"}, {{"KILN_CACHE_DIR", path("nowhere")}});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(parse(r.out)["kiln_compiles_total"], "0");
  EXPECT_FALSE(exists(path("nowhere")));
}

TEST_F(Prometheus, TheClientLibrarysParserReadsTheSame) {
  if (std::system("python3 -c 'import prometheus_client.parser' 2>/dev/null") != 0)
    GTEST_SKIP() << "prometheus_client is not installed";
  write("metrics", text());
  write("read.py",
        "import sys\n"
        "from prometheus_client.parser import text_string_to_metric_families\n"
        "for family in text_string_to_metric_families(open(sys.argv[1]).read()):\n"
        "  for s in family.samples: print(family.type, s.name, len(s.labels), s.value)\n");
  ASSERT_EQ(
      std::system(("python3 " + path("read.py") + ' ' + path("metrics") + " > " + path("read")).c_str()), 0);
  const std::string read = base::read_file(path("read"))->bytes;
  EXPECT_NE(read.find("counter kiln_compiles_total 0 11.0\n"), std::string::npos) << read;
  EXPECT_EQ(static_cast<std::size_t>(std::count(read.begin(), read.end(), '\n')), parse(text()).size());
}

class PrometheusEntries : public KilnCompiler {};

TEST_F(PrometheusEntries, AreCountedByTemplateAndArch) {
  for (const char* n : {"N=1", "N=2"}) ASSERT_EQ(kiln({"compile", "scale", n, "--arch", "sm_90a"}).status, 0);
  auto values = parse(kiln({"stats", "--prometheus", "-"}).out);
  EXPECT_EQ(values["kiln_store_entries{template=\"scale\",arch=\"sm_90a\"}"], "2");
  EXPECT_EQ(values["kiln_compiles_total"], "2");
}

}  // namespace
}  // namespace kiln::test

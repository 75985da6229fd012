// kiln verify, and the output of ls, show and stats about damage.
#include <csignal>
#include <fstream>
#include <thread>

#include "support/nightly.hpp"
#include "tools/store_command.hpp"
#include "tools/terminal.hpp"

namespace kiln::test {
namespace {

using cache::test::key_of;
class Verify : public StoreCommand {
 protected:
  void truncate_to(std::size_t size) const { overwrite(contents().substr(0, size)); }
};

TEST_F(Verify, ACleanStoreIsExitZero) {
  fill(20);
  const Finished r = kiln({"verify"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("checking 20 entries in " + cache()), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("20 entries intact, none damaged"), std::string::npos) << r.out;
  EXPECT_EQ(r.out.find('\r'), std::string::npos);
  EXPECT_EQ(r.err, "");
  const auto json = kiln({"verify", "--json"}).json();
  EXPECT_EQ(json["schema"], "kiln.verify/1");
  EXPECT_EQ(json["directory"], cache());
  EXPECT_EQ(json["file"], data_file());
  EXPECT_EQ(json["entries"], 20);
  EXPECT_EQ(json["bytes"], contents().size());
  EXPECT_EQ(json["damaged"].size(), 0u);
  EXPECT_EQ(json["ok"], true);
  EXPECT_TRUE(json["seconds"].is_number());
  EXPECT_EQ(json["set_aside"], nullptr);
}

TEST_F(Verify, AnEmptyStoreIsClean) {
  open();
  const Finished r = kiln({"verify", "--json"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.json()["entries"], 0);
  EXPECT_EQ(r.json()["ok"], true);
}

TEST_F(Verify, AMissingStoreIsSaidAndNotMade) {
  const Finished said = kiln({"verify"});
  EXPECT_EQ(said.status, 0);
  EXPECT_NE(said.out.find("Nothing is cached in " + cache() + " yet"), std::string::npos) << said.out;
  const Finished r = kiln({"verify", "--json"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.json()["entries"], 0);
  EXPECT_EQ(r.json()["ok"], true);
  EXPECT_FALSE(exists(cache()));
}

TEST_F(Verify, DamagedEntriesAreNamed) {
  fill(20);
  damage_image(5);
  damage_image(11);
  const Finished r = kiln({"verify"});
  EXPECT_EQ(r.status, 4) << r.out;
  for (const std::uint32_t number : {5, 11})
    EXPECT_NE(r.out.find("damaged  " + key_of(number).hex().substr(0, 12)), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("18 entries intact, 2 faults"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("kiln gc"), std::string::npos) << r.out;
  EXPECT_NE(r.err.find("damage was found"), std::string::npos) << r.err;
  const Finished json = kiln({"verify", "--json"});
  EXPECT_EQ(json.status, 4);
  EXPECT_EQ(json.json()["damaged"].size(), 2u);
  EXPECT_EQ(json.json()["damaged"][0]["key"], key_of(5).hex());
  EXPECT_EQ(json.json()["ok"], false);
  EXPECT_EQ(json.json()["error"]["code"], "damaged");
  // gc drops the damaged entries, and no others.
  EXPECT_EQ(kiln({"gc", "--json"}).json()["damaged"], 2);
  EXPECT_EQ(kiln({"verify", "--json"}).json()["entries"], 18);
  EXPECT_EQ(kiln({"verify"}).status, 0);
}

TEST_F(Verify, FilesWithoutAMetaPageAreDamaged) {
  fill(5);
  for (const std::string& bytes : {std::string(), std::string(100'000, 'g'), contents().substr(0, 100)}) {
    overwrite(bytes);
    const Finished r = kiln({"verify", "--json"});
    EXPECT_EQ(r.status, 4) << bytes.size();
    EXPECT_EQ(r.json()["damaged"][0]["key"], "") << r.out;
    EXPECT_EQ(r.json()["bytes"], bytes.size());
  }
}

TEST_F(Verify, ATruncatedFileIsDamaged) {
  fill(20);
  truncate_to(contents().size() - 4096);
  EXPECT_EQ(kiln({"verify"}).status, 4);
}

TEST_F(Verify, ALossOfTheMetaPageIsExitFourEverywhereAndHealed) {
  fill(3);
  overwrite(std::string(8192, '\0'));
  for (const Arguments& arguments : {Arguments{"ls"}, {"stats"}, {"show", "00"}, {"prewarm", "--check"}}) {
    const Finished r = kiln(arguments);
    EXPECT_EQ(r.status, 4) << arguments[0] << r.err;
    EXPECT_NE(r.err.find("kiln verify"), std::string::npos) << r.err;
    EXPECT_NE(r.err.find("next publish heals"), std::string::npos) << r.err;
  }
  EXPECT_EQ(kiln({"ls", "--json"}).json()["error"]["code"], "damaged");
  fill(1);  // the next publish
  for (const char* command : {"ls", "stats", "verify"}) EXPECT_EQ(kiln({command}).status, 0) << command;
  const Finished r = kiln({"verify", "--json"});
  EXPECT_EQ(r.json()["set_aside"], data_file() + ".damaged");
  EXPECT_NE(kiln({"verify"}).out.find("data.mdb.damaged"), std::string::npos);
  EXPECT_EQ(kiln({"gc"}).status, 0);
  EXPECT_FALSE(exists(data_file() + ".damaged"));
  EXPECT_EQ(kiln({"verify", "--json"}).json()["set_aside"], nullptr);
}

TEST_F(Verify, ADamagedHeadIsExitFourInListAndStatsAndShow) {
  fill(20);
  damage_head(7);
  for (const char* command : {"ls", "stats"}) {
    const Finished r = kiln({command});
    EXPECT_EQ(r.status, 4) << command;
    EXPECT_NE(r.err.find("1 entry is damaged"), std::string::npos) << r.err;
    EXPECT_NE(r.err.find("kiln verify"), std::string::npos) << r.err;
    EXPECT_EQ(kiln({command, "--json"}).json()["error"]["code"], "damaged");
  }
  EXPECT_EQ(kiln({"show", key_of(7).hex()}).status, 4);
  EXPECT_EQ(kiln({"show", key_of(99).hex()}).status, 1);  // this key is absent, not damaged
}

TEST_F(Verify, LayersAreReadWithAll) {
  fill(4);
  fill(6, path("layer"));
  const Environment layers{{"KILN_CACHE_LAYERS", path("layer")}};
  EXPECT_EQ(kiln({"verify", "--json"}, layers).json()["layers"].size(), 0u);
  const auto json = kiln({"verify", "--all", "--json"}, layers).json();
  EXPECT_EQ(json["entries"], 4);
  ASSERT_EQ(json["layers"].size(), 1u);
  EXPECT_EQ(json["layers"][0]["directory"], path("layer"));
  EXPECT_EQ(json["layers"][0]["entries"], 6);

  ASSERT_EQ(::truncate((path("layer") + "/v1/data.mdb").c_str(), 8192 + 4096), 0);
  EXPECT_EQ(kiln({"verify"}, layers).status, 0);
  const Finished r = kiln({"verify", "--all"}, layers);
  EXPECT_EQ(r.status, 4);
  EXPECT_NE(r.out.find("kiln prewarm --layer"), std::string::npos) << r.out;
  EXPECT_EQ(kiln({"verify", "--all"}, {{"KILN_CACHE_LAYERS", path("none")}}).status, 1);
}

TEST_F(Verify, AHostWithLayersOnlyIsRead) {
  fill(6, path("layer"));
  const Finished r = kiln({"verify", "--all"}, {{"KILN_CACHE_LAYERS", path("layer")}});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_FALSE(exists(cache()));
}

TEST_F(Verify, ShowsABarOnATerminal) {
  fill(20);
  const TerminalRun r = run_on_terminal(100, {"verify"}, environment());
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.screen.find("checking"), std::string::npos) << r.screen;
  ASSERT_EQ(visible_lines(r.screen).size(), 2u) << r.screen;
  damage_image(3);
  for (const std::string& line : visible_lines(run_on_terminal(80, {"verify"}, environment()).screen))
    EXPECT_LE(line.size(), 80u) << line;
}

/// The child of `pid` that reads the store.
int child_of(int pid) {
  const std::string children = "/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children";
  for (int attempt = 0; attempt < 2000; ++attempt) {
    int child = 0;
    std::ifstream(children) >> child;
    std::string name;
    std::getline(std::ifstream("/proc/" + std::to_string(child) + "/cmdline"), name);
    if (name.find("__verify-store") != std::string::npos) return child;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return 0;
}

TEST_F(Verify, AReaderThatIsKilledIsDamage) {
  fill(5);
  for (const int signal : {SIGSEGV, SIGBUS, SIGKILL}) {
    // The gate is closed to readers, so the child is still waiting when it is killed.
    const base::Fd fd(::open(data_file().c_str(), O_RDWR | O_CLOEXEC));
    auto gate = cache::RangeLock::acquire(fd.get(), cache::kGateOffset + 1, cache::RangeLock::Mode::exclusive,
                                          base::Deadline::after(std::chrono::seconds(5)));
    auto process = start({"verify", "--json"});
    const int child = child_of(process->pid());
    ASSERT_GT(child, 0);
    ASSERT_EQ(::kill(child, signal), 0);
    const Finished r = process->wait();
    EXPECT_EQ(r.status, 4) << r.err;
    const std::string what = r.json()["damaged"][0]["what"];
    EXPECT_NE(what.find("ended by signal " + std::to_string(signal)), std::string::npos) << what;
  }
}

TEST_F(Verify, AGateThatNobodyLeavesIsUnreadable) {
  KILN_NIGHTLY_ONLY();
  fill(5);
  const base::Fd fd(::open(data_file().c_str(), O_RDWR | O_CLOEXEC));
  auto gate = cache::RangeLock::acquire(fd.get(), cache::kGateOffset + 1, cache::RangeLock::Mode::exclusive,
                                        base::Deadline::after(std::chrono::seconds(5)));
  const Finished r = kiln({"verify"});
  EXPECT_EQ(r.status, 1) << r.out;
  EXPECT_NE(r.err.find("lslocks"), std::string::npos) << r.err;
}

class VerifyCompiled : public KilnCompiler {
 protected:
  /// Writes a plan of three kernels.
  std::string three() const {
    write("three.toml", "[[prewarm]]\ntemplate = \"scale\"\nN = [1, 2, 3]\n");
    return path("three.toml");
  }
};

TEST_F(VerifyCompiled, ADamagedEntryIsNamedByItsSpecialisation) {
  ASSERT_EQ(kiln({"prewarm", three(), "--arch", "sm_90a"}).status, 0);
  ASSERT_EQ(kiln({"compile", "scale", "N=3", "--arch", "sm_90a", "-o", path("image")}).status, 0);
  const std::string file = cache() + "/v1/data.mdb", image = base::read_file(path("image"))->bytes;
  std::string bytes = base::read_file(file)->bytes;
  const std::size_t at = bytes.find(image.substr(0, 256));
  ASSERT_NE(at, std::string::npos);
  bytes[at + 100] ^= 1;
  base::write_file(file, bytes, 0600);
  const Finished r = kiln({"verify"});
  EXPECT_EQ(r.status, 4);
  EXPECT_NE(r.out.find("scale N=3 FLAG=false for sm_90a"), std::string::npos) << r.out;
  const auto json = kiln({"verify", "--json"}).json();
  EXPECT_EQ(json["damaged"][0]["template"], "scale");
  EXPECT_EQ(json["damaged"][0]["params"]["N"], "3");
}

TEST_F(VerifyCompiled, UsesAreListed) {
  ASSERT_EQ(kiln({"compile", "scale", "N=3"}).status, 0);
  const auto entry = kiln({"ls", "--json"}).json()["entries"][0];
  EXPECT_GE(entry["uses"].get<int>(), 1);
  EXPECT_GE(entry["last_used"].get<std::int64_t>(), entry["created"].get<std::int64_t>() - 1);
  EXPECT_NE(kiln({"ls"}).out.find("LAST USED  USES"), std::string::npos);
  EXPECT_EQ(run_on_terminal(80, {"ls"}, environment()).screen.find("USES"), std::string::npos);
}

TEST_F(VerifyCompiled, StatsShowTheCapAndAgreeWithTheDisk) {
  ASSERT_EQ(kiln({"prewarm", three()}).status, 0);
  const auto json = kiln({"stats", "--json"}, {{"KILN_CACHE_MAX_SIZE", "64M"}}).json();
  EXPECT_EQ(json["cap_bytes"], 64 << 20);
  struct stat st {};
  ASSERT_EQ(::stat((cache() + "/v1/data.mdb").c_str(), &st), 0);
  EXPECT_EQ(json["file_bytes"], st.st_size);
  EXPECT_LE(json["live_bytes"], json["file_bytes"]);
  // du agrees: the file has no holes, and a filesystem may add a few blocks.
  EXPECT_GE(st.st_blocks * 512, st.st_size);
  EXPECT_LE(st.st_blocks * 512, st.st_size + (64 << 10));
  EXPECT_NE(kiln({"stats"}, {{"KILN_CACHE_MAX_SIZE", "64M"}}).out.find("64.0 MiB"), std::string::npos);
}

TEST_F(VerifyCompiled, PrewarmCheckCreatesNothing) {
  EXPECT_EQ(kiln({"prewarm", "--check"}).status, 3);
  struct stat st {};
  EXPECT_NE(::stat(cache().c_str(), &st), 0);
  // A layer still covers the plan.
  ASSERT_EQ(kiln({"prewarm", three(), "--layer", path("layer")}).status, 0);
  EXPECT_EQ(kiln({"prewarm", three(), "--check"}, {{"KILN_CACHE_LAYERS", path("layer")}}).status, 0);
  EXPECT_NE(::stat(cache().c_str(), &st), 0);
  ASSERT_EQ(kiln({"prewarm", three()}).status, 0);
  EXPECT_EQ(kiln({"prewarm", three(), "--check"}).status, 0);
}

}  // namespace
}  // namespace kiln::test

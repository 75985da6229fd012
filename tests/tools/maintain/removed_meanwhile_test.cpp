// Commands that read the cache while `kiln clear` empties it: a removed entry is not a damaged one. Each
// command is stopped before each of its reads in turn. Then the cache is cleared, and the command goes on.
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "support/places.hpp"
#include "tools/bundle/fixture.hpp"
#include "tools/fleet/fixture.hpp"

namespace kiln::test {
namespace {

constexpr int kMostReads = 500;

/// Stops commands in the middle, and lets them go on when the cache has changed.
template <class Base>
class Stopping : public Base {
 protected:
#ifdef __SANITIZE_ADDRESS__
  void SetUp() override {
    GTEST_SKIP() << "the address sanitizer stands before the library that stops a command at a read";
  }
#endif
  static bool is_stopped(int pid) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(stat, text);
    const std::size_t name = text.rfind(')');
    return name != std::string::npos && text[name + 2] == 'T';
  }
  static bool has_ended(int pid) {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           info.si_pid == pid;
  }
  /// Starts a command that stops before `call`, runs `meanwhile`, and lets the command go on. Nothing when
  /// the command ended without making that call.
  std::optional<Finished> interrupted(const Arguments& arguments, const std::string& call,
                                      const std::function<void()>& meanwhile, Environment more = {}) {
    more["LD_PRELOAD"] = places::kFaultLibrary, more["FAULT_RULES"] = call + ":stop";
    const auto running = this->start(arguments, more);
    EXPECT_TRUE(base::poll_until(cache::test::soon(),
                                 [&] { return is_stopped(running->pid()) || has_ended(running->pid()); }));
    const bool stopped = is_stopped(running->pid());
    if (stopped) {
      meanwhile();
      running->send(SIGCONT);
    }
    Finished done = running->wait();
    return stopped ? std::optional(std::move(done)) : std::nullopt;
  }
  /// Runs the command once for each of its reads. `fill` fills the cache before a run, and
  /// the cache is cleared before that read.
  void expect_no_damage(const Arguments& arguments, const std::function<void()>& fill,
                        const Environment& more = {}) {
    int reads = 0;
    for (; reads < kMostReads; ++reads) {
      fill();
      const auto done = interrupted(
          arguments, "pread@cache/v1/data.mdb:" + std::to_string(reads + 1), [&] { clear(); }, more);
      if (!done) break;
      EXPECT_TRUE(done->status == 0 || done->status == 1 || done->status == 3)
          << "at read " << reads + 1 << ": " << done->status << ' ' << done->err << done->out;
      EXPECT_EQ(done->err.find("damage"), std::string::npos) << "at read " << reads + 1 << ": " << done->err;
      EXPECT_EQ(done->out.find("{\"damaged\""), std::string::npos) << "at read " << reads + 1 << done->out;
    }
    EXPECT_GT(reads, 1);
    EXPECT_LT(reads, kMostReads);
  }
  void clear() const {
    cache::StoreOptions options;
    options.directory = this->cache();
    cache::Store::open(options)->clear(cache::test::soon());
  }
};

class RemovedMeanwhile : public Stopping<BundleCommand> {
 protected:
  /// An entry whose image cannot be compressed. It is larger than a pipe or a writer's buffer.
  static cache::Record large(std::uint32_t number) {
    cache::Record record = Made(number).record();
    record.image += cache::test::record_of(number, 1 << 20).image;
    return record;
  }
  void put_large(std::uint32_t first, std::uint32_t last) const {
    for (std::uint32_t number = first; number < last; ++number)
      ASSERT_EQ(open()->put(large(number)).put, cache::Put::stored);
  }
  void clear_and_put(std::uint32_t first, std::uint32_t last) const {
    clear();
    put(first, last);
  }
};

class AtEachRead : public RemovedMeanwhile, public ::testing::WithParamInterface<Arguments> {};

TEST_P(AtEachRead, NothingIsCalledDamaged) {
  Arguments arguments = GetParam();
  for (std::string& word : arguments) {
    if (word == "KEY") word = Made(1).key().hex();
    if (word == "OTHER") word = Made(2).key().hex();
    if (word == "FILE") word = path("out");
    if (word == "CACHE") word = cache();
  }
  expect_no_damage(arguments, [this] { put(0, 3); });
}

/// `kiln verify` reads in a process of __verify-store.
INSTANTIATE_TEST_SUITE_P(Commands, AtEachRead,
                         ::testing::Values(Arguments{"ls"}, Arguments{"stats"},
                                           Arguments{"__verify-store", "CACHE"}, Arguments{"report", "FILE"},
                                           Arguments{"show", "KEY"}, Arguments{"diff", "KEY", "OTHER"},
                                           Arguments{"bundle", "export", "FILE", "--all"},
                                           Arguments{"bundle", "export", "FILE", "-t", "tool"}),
                         [](const auto& row) { return "Row" + std::to_string(row.index); });

TEST_F(RemovedMeanwhile, AnExportFollowsToTheNewFileAndBeginsAgain) {
  put_large(0, 4);
  const auto done = interrupted({"bundle", "export", path("x.kb"), "--all", "--json"}, "write@/#:1",
                                [&] { clear_and_put(10, 12); });
  if (!done) GTEST_SKIP() << "no file without a name (O_TMPFILE) on this filesystem";
  EXPECT_EQ(done->status, 0) << done->err;
  EXPECT_EQ(done->json()["entries"], 2) << "those of the new file, and no half of the old ones";
  EXPECT_EQ(done->json()["damaged"].size(), 0u);
  EXPECT_EQ(done->json()["removed"].size(), 0u);
  EXPECT_EQ(import(path("x.kb"), path("other")).json()["stored"], 2);
}

TEST_F(RemovedMeanwhile, AnExportOfATemplateThatWentAwayWritesNothing) {
  put_large(0, 4);
  write("x.kb", "what was there before");
  const auto done =
      interrupted({"bundle", "export", path("x.kb"), "-t", "tool", "--json"}, "write@/#:1", [&] { clear(); });
  if (!done) GTEST_SKIP() << "no file without a name (O_TMPFILE) on this filesystem";
  EXPECT_EQ(done->status, 3) << done->err;
  EXPECT_EQ(done->json()["written"], false);
  EXPECT_EQ(bytes_of("x.kb"), "what was there before");
}

TEST_F(RemovedMeanwhile, AnExportToAPipeLeavesOutWhatWentAwayAndSaysSo) {
  put_large(0, 5);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const base::Fd reading(::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const auto running = start({"bundle", "export", path("pipe"), "--all", "--json"});
  std::string bytes;
  const auto drain = [&] {
    char buffer[1 << 16];
    ssize_t got = 0;
    while ((got = ::read(reading.get(), buffer, sizeof buffer)) > 0)
      bytes.append(buffer, static_cast<std::size_t>(got));
  };
  ASSERT_TRUE(base::poll_until(cache::test::soon(), [&] {
    char first = 0;
    return ::read(reading.get(), &first, 1) == 1 && (bytes += first, true);
  }));  // its first entry fills the pipe, so the last one is still unread
  ASSERT_EQ(kiln({"clear", "--yes"}).status, 0);
  EXPECT_TRUE(base::poll_until(cache::test::soon(), [&] { return drain(), has_ended(running->pid()); }));
  drain();
  const Finished done = running->wait();
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(done.json()["damaged"].size(), 0u);
  EXPECT_EQ(done.json()["entries"].get<std::size_t>() + done.json()["removed"].size(), 5u);
  EXPECT_GT(done.json()["removed"].size(), 0u);
  EXPECT_NE(done.err.find("removed from the cache meanwhile"), std::string::npos) << done.err;
  write("x.kb", bytes);
  EXPECT_EQ(kiln({"bundle", "diff", path("x.kb"), path("x.kb"), "--json"}).json()["same"],
            done.json()["entries"]);
}

TEST_F(RemovedMeanwhile, WhatIsDamagedIsStillExitFour) {
  put_large(0, 3);
  std::string bytes = contents();
  const std::size_t at = bytes.find(large(1).image.substr(5000, 64));
  ASSERT_NE(at, std::string::npos);
  bytes[at] ^= 1;
  overwrite(bytes);
  const Finished done = kiln({"bundle", "export", path("x.kb"), "--all", "--json"});
  EXPECT_EQ(done.status, 4);
  EXPECT_EQ(done.json()["damaged"].size(), 1u);
  EXPECT_EQ(done.json()["removed"].size(), 0u);
  EXPECT_EQ(kiln({"show", Made(1).key().hex()}).status, 4);
}

/// Checks compiled entries, and commands that send to a fleet's tier.
class RemovedCompiled : public Stopping<Fleet> {
 protected:
  void SetUp() override {
    Fleet::SetUp();
    if (IsSkipped()) return;
    write("plan.toml", "[[prewarm]]\ntemplate = \"scale\"\nN = [1, 2]\n");
    ASSERT_EQ(kiln({"prewarm", path("plan.toml"), "--arch", "sm_90a"}).status, 0);
    std::filesystem::copy(file(), path("kept"));
  }
  std::string file() const { return cache() + "/v1/data.mdb"; }
  void refill() const {
    std::filesystem::copy(path("kept"), path("kept.copy"));
    std::filesystem::rename(path("kept.copy"), file());
  }
  void expect_no_damage(const Arguments& arguments, const Environment& more = {}) {
    Stopping::expect_no_damage(
        arguments, [this] { refill(); }, more);
  }
};

TEST_F(RemovedCompiled, IsNotDamagedToAPlan) {
  expect_no_damage({"bundle", "export", path("x.kb"), path("plan.toml"), "--arch", "sm_90a"});
}
TEST_F(RemovedCompiled, IsNotDamagedToWhyOfAHit) {
  expect_no_damage({"why", "scale", "N=1", "--arch", "sm_90a"});
}
TEST_F(RemovedCompiled, IsNotDamagedToWhyOfAMiss) {
  expect_no_damage({"why", "scale", "N=9", "--arch", "sm_90a", "--all", "2"});
}
TEST_F(RemovedCompiled, IsNotDamagedToAnAudit) { expect_no_damage({"audit", "--all"}); }
TEST_F(RemovedCompiled, IsNotUnreadableToAPush) {
  const Environment writes = node("cache");
  expect_no_damage({"remote", "push", "--all"}, writes);
  refill();
  const auto done = interrupted(
      {"remote", "push", "--all", "--json"}, "send:1", [&] { clear(); }, writes);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->status, 0) << done->err;
  EXPECT_EQ(done->json()["unreadable"], 0) << done->out;
}

}  // namespace
}  // namespace kiln::test

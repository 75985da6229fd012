// kiln gc, clear and verify in a loop beside engines that keep putting and getting.
#include <sys/mman.h>

#include <atomic>
#include <thread>

#include "tools/store_command.hpp"

namespace kiln::test {
namespace {

using cache::test::key_of;
using cache::test::record_of;
using cache::test::same;
using cache::test::soon;

/// Number of commands to run. For the soak, set KILN_SOAK_COMMANDS=1000.
int commands() {
  const char* soak = std::getenv("KILN_SOAK_COMMANDS");
  return soak ? std::atoi(soak) : 20;
}

/// The observations of an engine, in memory that parent and child share.
struct Seen {
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> puts{0}, gets{0}, hits{0}, wrong{0}, lost{0}, refused{0};
};

class Live : public StoreCommand {
 protected:
  void SetUp() override {
    void* shared = ::mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    seen_ = new (shared) Seen;
  }
  void TearDown() override { ::munmap(seen_, sizeof(Seen)); }

  static std::size_t size_of(std::uint32_t number) { return 500 + number * 977 % 20'000; }

  /// Puts new records and gets old ones until `stop`. `keeps`: no record that was put may be missing.
  int engine(std::uint32_t first, bool keeps) const {
    cache::StoreOptions options;
    options.directory = cache();
    options.put_wait = std::chrono::seconds(20);
    const auto store = Store::open(options);
    std::vector<std::uint32_t> there;
    for (std::uint32_t number = first; !seen_->stop; ++number) {
      const auto put = store->put(record_of(number, size_of(number))).put;
      if (put == cache::Put::stored)
        there.push_back(number), ++seen_->puts;
      else
        ++seen_->refused;
      for (std::size_t i = 0; i < 20 && !there.empty(); ++i) {
        const std::uint32_t old = there[(number * 31 + i * 7) % there.size()];
        const cache::Record expected = record_of(old, size_of(old));
        const auto got = store->get(key_of(old), expected.key_text, soon());
        ++seen_->gets;
        if (got.record)
          ++(same(*got.record, expected) ? seen_->hits : seen_->wrong);
        else if (keeps)
          ++seen_->lost;
      }
    }
    for (const std::uint32_t number : there) {
      const cache::Record expected = record_of(number, size_of(number));
      const auto got = store->get(key_of(number), expected.key_text, soon());
      if (got.record ? !same(*got.record, expected) : keeps) ++seen_->lost;
    }
    return 0;
  }

  void beside_engines(bool keeps, const std::function<void(int)>& command) {
    std::vector<pid_t> engines;
    for (std::uint32_t i = 0; i < 2; ++i) {
      const pid_t pid = ::fork();
      if (pid == 0) ::_exit(engine(i * 1'000'000, keeps));
      engines.push_back(pid);
    }
    for (int i = 0; i < commands(); ++i) command(i);
    seen_->stop = true;
    for (const pid_t pid : engines) {
      int status = -1;
      ::waitpid(pid, &status, 0);
      EXPECT_EQ(status, 0);
    }
  }
  void print(const char* what) const {
    std::printf("FIGURES %s x %d: %lu puts, %lu gets, %lu hits, %lu wrong, %lu lost, %lu refused\n", what,
                commands(), seen_->puts.load(), seen_->gets.load(), seen_->hits.load(), seen_->wrong.load(),
                seen_->lost.load(), seen_->refused.load());
  }

  Seen* seen_ = nullptr;
};

TEST_F(Live, GcLosesNothingAndVerifyFindsNothing) {
  open();
  beside_engines(true, [this](int i) {
    const Finished r = kiln({i % 3 == 2 ? "verify" : "gc"});
    EXPECT_EQ(r.status, 0) << r.err << r.out;
  });
  print("gc and verify");
  EXPECT_EQ(seen_->wrong, 0u);
  EXPECT_EQ(seen_->lost, 0u);
  EXPECT_EQ(seen_->refused, 0u);
  EXPECT_GT(seen_->puts, 20u);
  EXPECT_EQ(kiln({"verify", "--json"}).json()["entries"], seen_->puts.load());
}

TEST_F(Live, ClearAndTightGcServeNothingWrong) {
  open();
  beside_engines(false, [this](int i) {
    const Finished r = i % 2 == 0 ? kiln({"clear", "--yes"}) : kiln({"gc", "--max-size", "100K"});
    EXPECT_EQ(r.status, 0) << r.err;
  });
  print("clear and gc --max-size");
  EXPECT_EQ(seen_->wrong, 0u);
  EXPECT_EQ(seen_->refused, 0u);
  EXPECT_GT(seen_->hits, 0u);
  EXPECT_EQ(kiln({"verify"}).status, 0);
}

TEST_F(Live, AnOpenStoreFollowsTheNewFile) {
  fill(10);
  const auto store = open();
  ASSERT_TRUE(store->peek(key_of(3), soon()));
  ASSERT_EQ(kiln({"clear", "--yes"}).status, 0);
  for (std::uint32_t number = 0; number < 10; ++number)
    EXPECT_EQ(store->get(key_of(number), record_of(number).key_text, soon()).miss, cache::Miss::absent);
  EXPECT_EQ(store->put(record_of(3)).put, cache::Put::stored);
  ASSERT_EQ(kiln({"gc"}).status, 0);
  EXPECT_TRUE(store->peek(key_of(3), soon()));
}

class LiveCompiled : public KilnCompiler {};

TEST_F(LiveCompiled, AfterClearEverythingIsCompiledAgain) {
  ASSERT_EQ(kiln({"compile", "scale", "N=3", "--json"}).json()["outcome"], "compiled");
  ASSERT_EQ(kiln({"compile", "scale", "N=3", "--json"}).json()["outcome"], "disk");
  ASSERT_EQ(kiln({"gc"}).status, 0);
  EXPECT_EQ(kiln({"compile", "scale", "N=3", "--json"}).json()["outcome"], "disk");
  ASSERT_EQ(kiln({"clear", "--yes"}).status, 0);
  EXPECT_EQ(kiln({"compile", "scale", "N=3", "--json"}).json()["outcome"], "compiled");
  EXPECT_EQ(kiln({"compile", "scale", "N=3", "--json"}).json()["outcome"], "disk");
}

}  // namespace
}  // namespace kiln::test

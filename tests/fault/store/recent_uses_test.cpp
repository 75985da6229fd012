// Records that eviction spares when processes come and go. It spares those that any process read lately,
// although uses in the tree are only updated once an hour.
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/fault/store/fixture.hpp"

namespace kiln::cache::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kRecentSize = 50'000;

class RecentUsesTest : public StoreFixture {
 protected:
  std::string table() const { return directory() + "/v1/recent"; }
  std::shared_ptr<Store> open_small() const {
    StoreOptions o = options();
    o.cap_bytes = 6 << 20;
    o.upkeep = upkeep_;
    return Store::open(o);
  }
  /// Puts [first, last) in a separate process. Returns the number of evicted entries.
  /// The test fails when the process fails.
  std::uint64_t put_elsewhere(std::uint32_t first, std::uint32_t last) const {
    const Shared<std::uint64_t> evicted;
    EXPECT_EQ(child([&] {
                const auto store = open_small();
                for (std::uint32_t number = first; number < last; ++number) {
                  const auto got = store->put(record_of(number, kRecentSize));
                  if (got.put != Put::stored) return 1;
                  *evicted += got.evicted;
                }
                return 0;
              }),
              0);
    return *evicted;
  }
  /// Reads once in a new process, like a short command.
  bool read_elsewhere(std::uint32_t number) const {
    return child([&] { return holds(*open_small(), number, kRecentSize) ? 0 : 1; }) == 0;
  }
  std::chrono::milliseconds upkeep_{60'000};
};

TEST_F(RecentUsesTest, KernelsThatFreshProcessesAskForSurviveTheChurnOfOthers) {
  put_elsewhere(0, 85);  // the first two are the oldest
  std::uint64_t evicted = 0, missed = 0;
  for (std::uint32_t number = 1000; number < 1400; number += 20) {
    for (const std::uint32_t hot : {0u, 1u}) missed += !read_elsewhere(hot);
    evicted += put_elsewhere(number, number + 20);
  }
  report("two hot kernels of fresh processes", {{"evicted", evicted}, {"missed", missed}});
  EXPECT_GT(evicted, 300u);
  EXPECT_EQ(missed, 0u);
}

TEST_F(RecentUsesTest, GcKeepsWhatWasReadLastAndRemembersIt) {
  put_elsewhere(0, 90);
  for (const std::uint32_t hot : {0u, 1u}) ASSERT_TRUE(read_elsewhere(hot));
  const auto store = open_small();
  EXPECT_GT(store->gc(1 << 20, soon()).dropped, 60u);
  for (const std::uint32_t hot : {0u, 1u}) EXPECT_TRUE(store->peek(key_of(hot), soon())) << hot;
  std::uint64_t evicted = 0;
  for (std::uint32_t number = 1000; evicted < 4; ++number) evicted += put_elsewhere(number, number + 1);
  EXPECT_LT(evicted, 17u) << "of those that were put after the hot ones and not read";
  for (const std::uint32_t hot : {0u, 1u}) EXPECT_TRUE(store->peek(key_of(hot), soon())) << hot;
}

TEST_F(RecentUsesTest, LongLivedProcessKeepsWhatItHolds) {
  upkeep_ = 10ms;
  put_elsewhere(0, 90);
  const pid_t engine = ::fork();
  if (engine == 0) {
    const auto store = open_small();
    if (!holds(*store, 0, kRecentSize) || !holds(*store, 1, kRecentSize)) ::_exit(1);
    ::alarm(300);
    for (;;) ::pause();  // the engine has both in memory and does not read them again
  }
  bool noted = true;
  for (std::uint32_t number = 1000; number < 1400 && noted; number += 5) {
    const auto before = base::read_file(table())->bytes;
    put_elsewhere(number, number + 5);
    // No other process reads a record, so only the engine's upkeep changes the table.
    noted = base::poll_until(base::Deadline::after(120s),
                             [&] { return base::read_file(table())->bytes != before; });
  }
  EXPECT_TRUE(noted);
  const auto store = open_small();
  for (const std::uint32_t hot : {0u, 1u}) EXPECT_TRUE(store->peek(key_of(hot), soon())) << hot;
  ::kill(engine, SIGKILL);
  int status = 0;
  ::waitpid(engine, &status, 0);
}

TEST_F(RecentUsesTest, StoreWithRoomHasNoTable) {
  put_elsewhere(0, 50);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(read_elsewhere(7));
  EXPECT_FALSE(std::filesystem::exists(table()));
  put_elsewhere(50, 90);
  EXPECT_TRUE(std::filesystem::exists(table()));
}

TEST_F(RecentUsesTest, GarbageInTheTableCostsNoReadAndNoPut) {
  put_elsewhere(0, 90);
  std::string garbage(1 << 18, '\0');
  std::uint32_t state = 7;
  for (char& byte : garbage) byte = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
  for (const std::string& bytes : {garbage, std::string("short"), std::string(1 << 18, '\xff')}) {
    base::write_file(table(), bytes);
    const auto store = open_small();
    for (std::uint32_t number = 2000; number < 2060; ++number) {
      ASSERT_EQ(store->put(record_of(number, kRecentSize)).put, Put::stored);
      ASSERT_TRUE(holds(*store, number, kRecentSize));
    }
    store->clear(soon());
  }
  ASSERT_EQ(::unlink(table().c_str()), 0);
  ASSERT_EQ(::mkfifo(table().c_str(), 0600), 0);  // a FIFO without a reader
  EXPECT_GT(put_elsewhere(3000, 3150), 0u);
  EXPECT_TRUE(read_elsewhere(3149));
}

TEST_F(RecentUsesTest, ReaderUnderAFileSizeLimitIsNotKilled) {
  put_elsewhere(0, 90);
  EXPECT_EQ(child([&] {
              std::signal(SIGXFSZ, SIG_DFL);
              const struct rlimit none { 0, 0 };
              if (::setrlimit(RLIMIT_FSIZE, &none) != 0) return 1;
              const auto store = open_small();
              for (std::uint32_t number = 0; number < 90; ++number)
                if (!holds(*store, number, kRecentSize)) return 2;
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace kiln::cache::test

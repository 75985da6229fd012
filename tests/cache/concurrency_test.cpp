// Threads and transactions at once: readers during writes, holders that stop, forks in between.
#include <fcntl.h>
#include <lmdb.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "cache/lock/fd_pool.hpp"
#include "cache/lock/gate.hpp"
#include "kiln/error.hpp"
#include "support/nightly.hpp"
#include "support/time_limit.hpp"
#include "tests/cache/fixture.hpp"

namespace kiln::cache::test {
namespace {

using namespace std::chrono_literals;

class ConcurrencyTest : public StoreFixture {
 protected:
  FdPool& gate() {
    if (!pool_) pool_ = std::make_unique<FdPool>(data_file(), O_RDWR);
    return *pool_;
  }
  std::unique_ptr<FdPool> pool_;
};

TEST_F(ConcurrencyTest, ReadersGoOnWhileAWriterHoldsTheGate) {
  const auto store = open();
  ASSERT_EQ(store->put(record_of(1)).put, Put::stored);
  auto fd = gate().lease();
  const auto writer = WriterPass::enter(fd.get(), soon());
  ASSERT_TRUE(writer);  // holds the gate as during a slow sync
  const auto start = base::Clock::now();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(holds(*store, 1));
  EXPECT_LT(base::Clock::now() - start, at_most(1s));
}

TEST_F(ConcurrencyTest, PutIsSkippedWhenAnotherWriterStays) {
  put_wait_ = 100ms;
  const auto store = open();
  auto fd = gate().lease();
  const auto writer = WriterPass::enter(fd.get(), soon());
  const auto start = base::Clock::now();
  const auto result = store->put(record_of(1));
  const auto took = base::Clock::now() - start;
  EXPECT_EQ(result.put, Put::gate_timeout);
  EXPECT_FALSE(result.detail.empty());
  EXPECT_GE(took, 100ms);
  EXPECT_LT(took, at_most(5s));
}

TEST_F(ConcurrencyTest, PutIsSkippedWhenAReaderStays) {
  put_wait_ = 150ms;
  const auto store = open();
  auto fd = gate().lease();
  auto reader = enter_reader(fd.get(), soon());
  const auto start = base::Clock::now();
  EXPECT_EQ(store->put(record_of(1)).put, Put::gate_timeout);
  EXPECT_LT(base::Clock::now() - start, at_most(5s));
  reader->release();
  EXPECT_EQ(store->put(record_of(1)).put, Put::stored);
}

TEST_F(ConcurrencyTest, GetMissesAtItsDeadlineWhenTheGateIsShut) {
  const auto store = open();
  ASSERT_EQ(store->put(record_of(1)).put, Put::stored);
  auto fd = gate().lease();
  auto writer = WriterPass::enter(fd.get(), soon());
  const auto drained = writer->drain(soon());
  const auto start = base::Clock::now();
  const auto result = store->get(key_of(1), record_of(1).key_text, base::Deadline::after(100ms));
  EXPECT_EQ(result.miss, Miss::gate_timeout);
  EXPECT_FALSE(result.record);
  EXPECT_LT(base::Clock::now() - start, at_most(5s));
}

TEST_F(ConcurrencyTest, ReaderSeesTheStateBeforeAnOpenTransaction) {
  const auto store = open();
  ASSERT_EQ(store->put(record_of(1, 100'000)).put, Put::stored);
  // A transaction of another program that keeps the gate's rules. Its own environment
  // stands for another process.
  MDB_env* env = nullptr;
  ASSERT_EQ(mdb_env_create(&env), 0);
  ASSERT_EQ(mdb_env_set_mapsize(env, 1 << 30), 0);
  ASSERT_EQ(mdb_env_open(env, data_file().c_str(), MDB_NOSUBDIR | MDB_NOLOCK, 0600), 0);
  auto fd = gate().lease();
  auto writer = WriterPass::enter(fd.get(), soon());
  MDB_txn* txn = nullptr;
  {
    const auto drained = writer->drain(soon());
    ASSERT_EQ(mdb_txn_begin(env, nullptr, 0, &txn), 0);
  }
  MDB_dbi dbi = 0;
  ASSERT_EQ(mdb_dbi_open(txn, nullptr, 0, &dbi), 0);
  ASSERT_EQ(mdb_drop(txn, dbi, 0), 0);
  EXPECT_TRUE(holds(*store, 1, 100'000));
  ASSERT_EQ(mdb_txn_commit(txn), 0);
  EXPECT_EQ(store->get(key_of(1), record_of(1).key_text, soon()).miss, Miss::absent);
  mdb_env_close(env);
}

TEST_F(ConcurrencyTest, StoppedReaderDelaysAWriterOnlyUntilItsDeadline) {
  put_wait_ = 200ms;
  const auto store = open();
  ASSERT_EQ(store->put(record_of(1)).put, Put::stored);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    FdPool own(data_file(), O_RDWR);
    auto fd = own.lease();
    const auto reader = enter_reader(fd.get(), soon());
    [[maybe_unused]] auto n = ::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  const auto start = base::Clock::now();
  EXPECT_EQ(store->put(record_of(2)).put, Put::gate_timeout);
  EXPECT_LT(base::Clock::now() - start, at_most(5s));
  EXPECT_TRUE(holds(*store, 1));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  EXPECT_EQ(store->put(record_of(2)).put, Put::stored);
}

TEST_F(ConcurrencyTest, EightThreadsReadOnlyWhatWasWritten) {
  constexpr std::uint32_t kKeys = 200;
  std::atomic<int> wrong{0}, gets{0}, hits{0}, puts{0}, skipped{0}, lost{0};
  std::atomic<std::uint32_t> acknowledged[kKeys] = {};
  const auto until = base::Deadline::after(3s);
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 8; ++seed)
    threads.emplace_back([&, seed] {
      const auto store = open();
      std::mt19937 random(seed);
      while (!until.passed()) {
        const std::uint32_t number = random() % kKeys;
        const Record expected = record_of(number, number * 311);
        if (random() % 4 == 0) {
          const auto result = store->put(expected);
          if (result.put == Put::stored || result.put == Put::present)
            acknowledged[number] = 1, ++puts;
          else
            ++skipped;
        } else {
          const bool must = acknowledged[number] != 0;
          const auto got = store->get(key_of(number), expected.key_text, soon());
          ++gets;
          hits += got.record.has_value();
          wrong += got.record ? !same(*got.record, expected) : got.miss != Miss::absent;
          lost += must && !got.record;
        }
      }
    });
  for (auto& thread : threads) thread.join();
  std::printf("%d gets (%d hits), %d puts, %d skipped\n", gets.load(), hits.load(), puts.load(),
              skipped.load());
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(skipped, 0);
  EXPECT_EQ(open()->stats().entries,
            static_cast<std::uint64_t>(std::count(std::begin(acknowledged), std::end(acknowledged), 1u)));
}

TEST_F(ConcurrencyTest, ThreadsFollowAFileThatIsReplacedAgainAndAgain) {
  open();
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0}, failed{0};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 3; ++seed)
    threads.emplace_back([&, seed] {
      const auto store = open();
      std::mt19937 random(seed);
      while (!stop) {
        const std::uint32_t number = random() % 20;
        const auto result = store->put(record_of(number));
        if (result.put != Put::stored && result.put != Put::present) {
          ++failed;
          std::printf("%s: %s\n", std::string(to_string(result.put)).c_str(), result.detail.c_str());
        }
        const auto got = store->get(key_of(number), record_of(number).key_text, soon());
        wrong += got.record ? !same(*got.record, record_of(number)) : got.miss != Miss::absent;
      }
    });
  StoreOptions o = options();
  o.directory = dir_.path() + "/fresh";
  for (int i = 0; i < 40; ++i) {
    Store::open(o);
    FdPool current(data_file(), O_RDWR);  // like gc: drains readers, then renames
    auto fd = current.lease();
    auto writer = WriterPass::enter(fd.get(), soon());
    const auto drained = writer->drain(soon());
    ASSERT_TRUE(drained);
    ASSERT_EQ(::rename((o.directory + "/v1/data.mdb").c_str(), data_file().c_str()), 0);
    std::this_thread::sleep_for(2ms);
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(failed, 0);
}

TEST_F(ConcurrencyTest, ForkedChildReadsAndWritesAndTheParentGoesOn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer lets a child of a threaded process start no threads";
#endif
  const auto store = open();
  ASSERT_EQ(store->put(record_of(1)).put, Put::stored);
  EXPECT_EQ(in_child([&] {
              if (!holds(*store, 1)) return 1;
              if (store->put(record_of(2)).put != Put::stored) return 2;
              return holds(*store, 2) && open()->stats().entries == 2 ? 0 : 3;
            }),
            0);
  EXPECT_TRUE(holds(*store, 2));
  EXPECT_EQ(store->put(record_of(3)).put, Put::stored);
  EXPECT_TRUE(holds(*store, 3));
}

TEST_F(ConcurrencyTest, ChildForkedAmidBusyThreadsNeverHangsNorHarms) {
  KILN_NIGHTLY_ONLY();
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer lets a child of a threaded process start no threads";
#endif
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "gcc 12's address sanitizer leaves its allocator locked in a child forked amid threads";
#endif
  const auto store = open();
  ASSERT_EQ(store->put(record_of(0)).put, Put::stored);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed < 5; ++seed)
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      while (!stop) {
        const std::uint32_t number = random() % 50;
        if (random() % 2) store->put(record_of(number));
        const auto got = store->get(key_of(number), record_of(number).key_text, soon());
        wrong += got.record ? !same(*got.record, record_of(number)) : got.miss != Miss::absent;
      }
    });
  std::string bad;
  for (std::uint32_t i = 0; i < 60; ++i) {
    const int status = in_child([&] {
      ::alarm(20);
      if (!holds(*store, 0)) return 1;
      return 2 + static_cast<int>(store->put(record_of(1000 + i)).put);
    });
    if (status != 2) bad += ' ' + std::to_string(status);
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(bad, "");
  EXPECT_EQ(wrong, 0);
  for (std::uint32_t i = 0; i < 60; ++i) EXPECT_TRUE(holds(*store, 1000 + i)) << i;
}

TEST_F(ConcurrencyTest, ChildThatOnlyExitsLeavesTheParentWorking) {
  auto store = open();
  ASSERT_EQ(store->put(record_of(1)).put, Put::stored);
  EXPECT_EQ(in_child([&] {
              store.reset();  // runs destructors of the inherited store
              return 0;
            }),
            0);
  EXPECT_TRUE(holds(*store, 1));
  EXPECT_EQ(store->put(record_of(2)).put, Put::stored);
}

TEST_F(ConcurrencyTest, ChildKeepsNoDescriptorOfTheDataFileOnceForked) {
  const auto store = open();
  ASSERT_EQ(store->put(record_of(1)).put, Put::stored);
  // One descriptor may stay: LMDB's own for meta pages, which carries no lock and is close-on-exec.
  EXPECT_LE(in_child([&] {
              int count = 0;
              for (int fd = 0; fd < 1000; ++fd) {
                char target[4096] = {};
                const std::string link = "/proc/self/fd/" + std::to_string(fd);
                if (::readlink(link.c_str(), target, sizeof target - 1) > 0) count += target == data_file();
              }
              return count;
            }),
            1);
}

}  // namespace
}  // namespace kiln::cache::test

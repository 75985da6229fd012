// The store's upkeep: when a thread does it, and which writes happen without a thread. A process that takes
// one kernel from disk pays neither for the thread nor for a wait at its end.
#include <fcntl.h>
#include <lmdb.h>

#include <ctime>
#include <filesystem>

#include "base/deadline.hpp"
#include "cache/lock/fd_pool.hpp"
#include "cache/lock/gate.hpp"
#include "cache/store/file/pieces.hpp"
#include "support/time_limit.hpp"
#include "tests/cache/fixture.hpp"

namespace kiln::cache::test {
namespace {

using namespace std::chrono_literals;

std::ptrdiff_t threads() { return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}); }

class UpkeepTest : public StoreFixture {
 protected:
  UpkeepTest() {
#ifndef __SANITIZE_THREAD__  // which runs its own thread
    EXPECT_TRUE(base::poll_until(soon(), [] { return threads() == 1; })) << "those of the test before end";
#endif
    // Another process writes: its uses are stored, and its threads do not run in this process.
    EXPECT_EQ(in_child([&] {
                const auto store = open();
                for (const std::uint32_t number : {1u, 2u})
                  if (store->put(record_of(number)).put != Put::stored) return 1;
                return 0;
              }),
              0);
  }
  void make_uses_older(std::uint64_t seconds) const {
    MDB_env* env = nullptr;
    MDB_txn* txn = nullptr;
    MDB_dbi dbi = 0;
    ASSERT_EQ(mdb_env_create(&env), 0);
    ASSERT_EQ(mdb_env_set_mapsize(env, 16 << 20), 0);
    ASSERT_EQ(mdb_env_open(env, data_file().c_str(), MDB_NOSUBDIR | MDB_NOLOCK, 0600), 0);
    ASSERT_EQ(mdb_txn_begin(env, nullptr, 0, &txn), 0);
    ASSERT_EQ(mdb_dbi_open(txn, nullptr, 0, &dbi), 0);
    const auto then = static_cast<std::uint64_t>(std::time(nullptr)) - seconds;
    for (const std::uint32_t number : {1u, 2u})
      ASSERT_EQ(write_use(txn, dbi, key_of(number), {number, then, 1, then}), 0);
    ASSERT_EQ(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
  }
  std::uint64_t age_of_use(std::uint32_t number) const {
    std::uint64_t out = ~std::uint64_t{0};
    open()->list([&](const Entry& entry) {
      if (entry.key == key_of(number))
        out = static_cast<std::uint64_t>(std::time(nullptr)) - entry.last_used_s;
    });
    return out;
  }
  static int descriptors_of_the_file() {
    int out = 0;
    std::error_code ignored;
    for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd"))
      out += std::filesystem::read_symlink(fd.path(), ignored).filename() == "data.mdb";
    return out;
  }
};

TEST_F(UpkeepTest, OneHitOfAnEntryThatWasUsedLatelyStartsNoThreadAndKeepsNoDescriptor) {
  const auto before = threads();
  const auto store = open();
  ASSERT_TRUE(holds(*store, 1));
  EXPECT_EQ(threads(), before);
  EXPECT_EQ(descriptors_of_the_file(), 0);
}

TEST_F(UpkeepTest, MissAloneStartsNoThreadAndKeepsNoDescriptor) {
  const auto before = threads();
  const auto store = open();
  ASSERT_FALSE(holds(*store, 3));
  EXPECT_EQ(threads(), before);
  EXPECT_EQ(descriptors_of_the_file(), 0);
}

TEST_F(UpkeepTest, SecondUseStartsIt) {
  const auto before = threads();
  const auto store = open();
  ASSERT_TRUE(holds(*store, 1));
  ASSERT_TRUE(holds(*store, 2));
  EXPECT_GT(threads(), before);
}

TEST_F(UpkeepTest, PutStartsIt) {
  const auto before = threads();
  const auto store = open();
  ASSERT_EQ(store->put(record_of(3)).put, Put::stored);
  EXPECT_GT(threads(), before);
}

TEST_F(UpkeepTest, FirstUseIsWrittenWhenTheStoredOneIsOld) {
  make_uses_older(7200);
  {
    const auto store = open();
    ASSERT_TRUE(holds(*store, 1));
  }
  EXPECT_LT(age_of_use(1), 600u);
  EXPECT_GE(age_of_use(2), 7200u);
}

TEST_F(UpkeepTest, StoreClosesAtOnceWhenNothingIsDue) {
  std::vector<base::Clock::duration> took;
  for (int i = 0; i < 5; ++i) {
    auto store = open();
    ASSERT_TRUE(holds(*store, 1));
    ASSERT_TRUE(holds(*store, 2));
    const auto begin = base::Clock::now();
    store.reset();
    took.push_back(base::Clock::now() - begin);
  }
  std::sort(took.begin(), took.end());
  EXPECT_LT(took[2], at_most(100ms));  // a hanging disk would cost 200 ms
}

TEST_F(UpkeepTest, ClosedStoreHasNoDescriptorOpen) {
  for (int i = 0; i < 200; ++i) {
    {
      const auto store = open();
      ASSERT_TRUE(holds(*store, 1));
      ASSERT_TRUE(holds(*store, 2));
    }
    ASSERT_EQ(descriptors_of_the_file(), 0) << "round " << i;
  }
}

TEST_F(UpkeepTest, StoreClosedWhileAnotherWriterIsInTheGateHasNoDescriptorOpenEither) {
  make_uses_older(7200);
  FdPool writers(data_file(), O_RDWR | O_CLOEXEC);
  const auto fd = writers.lease();
  const auto writer = WriterPass::enter(fd.get(), base::Deadline::after(5s));
  ASSERT_TRUE(writer);
  const int before = descriptors_of_the_file();
  {
    const auto store = open();
    ASSERT_TRUE(holds(*store, 1));
    ASSERT_TRUE(holds(*store, 2));
  }
  EXPECT_EQ(descriptors_of_the_file(), before);
}

TEST_F(UpkeepTest, ForkedChildKeepsTheStoreUpItself) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "a forked child of several threads may start none under this sanitizer";
#endif
  const auto store = open();
  ASSERT_TRUE(holds(*store, 1));
  ASSERT_TRUE(holds(*store, 2));
  make_uses_older(7200);
  EXPECT_EQ(in_child([&] {
              const auto before = threads();
              return holds(*store, 1) && threads() > before ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace kiln::cache::test

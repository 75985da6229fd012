// Records that eviction spares. Records that the evicting process read itself are spared at
// once. Records that other processes read are spared after their use was written, which happens
// when the stored use is older than an hour.
#include <lmdb.h>

#include <ctime>

#include "cache/store/file/pieces.hpp"
#include "tests/fault/store/fixture.hpp"

namespace kiln::cache::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kRead = 10, kUseFilled = 66;
constexpr std::size_t kUseSize = 100'000;

class EvictionUseTest : public StoreFixture {
 protected:
  StoreOptions capped() const {
    StoreOptions o = options();
    o.cap_bytes = 8 << 20;
    o.upkeep = 20ms;
    return o;
  }
  /// Puts [first, last) in a separate process. Returns the number of evicted entries.
  std::uint64_t put_elsewhere(std::uint32_t first, std::uint32_t last) {
    const Shared<std::uint64_t> evicted;
    EXPECT_EQ(child([&] {
                const auto store = Store::open(capped());
                for (std::uint32_t number = first; number < last; ++number) {
                  const auto result = store->put(record_of(number, kUseSize));
                  if (result.put != Put::stored) return 1;
                  *evicted += result.evicted;
                }
                return 0;
              }),
              0);
    return *evicted;
  }
  static std::uint64_t kept(Store& store, std::uint32_t first, std::uint32_t last) {
    std::uint64_t out = 0;
    for (std::uint32_t number = first; number < last; ++number) {
      const auto got = store.peek(key_of(number), soon());
      out += got && same(*got, record_of(number, kUseSize));
    }
    return out;
  }
  /// Makes all uses two hours old, in the same order.
  void make_uses_older() const {
    MDB_env* env = nullptr;
    MDB_txn* txn = nullptr;
    MDB_dbi dbi = 0;
    ASSERT_EQ(mdb_env_create(&env), 0);
    ASSERT_EQ(mdb_env_set_mapsize(env, 16 << 20), 0);
    ASSERT_EQ(mdb_env_open(env, data_file().c_str(), MDB_NOSUBDIR | MDB_NOLOCK, 0600), 0);
    ASSERT_EQ(mdb_txn_begin(env, nullptr, 0, &txn), 0);
    ASSERT_EQ(mdb_dbi_open(txn, nullptr, 0, &dbi), 0);
    const auto then = static_cast<std::uint64_t>(std::time(nullptr)) - 7200;
    for (std::uint32_t number = 0; number < kUseFilled; ++number)
      ASSERT_EQ(write_use(txn, dbi, key_of(number), {number + 1, then, 1, then}), 0);
    ASSERT_EQ(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
  }
  static std::uint64_t used_lately(Store& store) {
    std::uint64_t out = 0;
    store.list(
        [&](const Entry& entry) { out += entry.last_used_s + 600 > std::uint64_t(std::time(nullptr)); });
    return out;
  }
};

TEST_F(EvictionUseTest, ProcessSparesWhatItReadItself) {
  ASSERT_EQ(put_elsewhere(0, kUseFilled), 0u);
  const auto store = Store::open(capped());
  for (std::uint32_t number = 0; number < kRead; ++number) ASSERT_TRUE(holds(*store, number, kUseSize));
  std::uint64_t evicted = 0, stored = 0;
  for (std::uint32_t number = 1000; number < 1040; ++number) {
    const auto result = store->put(record_of(number, kUseSize));
    stored += result.put == Put::stored, evicted += result.evicted;
  }
  const std::uint64_t spared = kept(*store, 0, kRead), others = kept(*store, kRead, kUseFilled);
  report("what the evicting process read", {{"read", kRead},
                                            {"spared", spared},
                                            {"evicted", evicted},
                                            {"others kept", others},
                                            {"stored", stored}});
  EXPECT_EQ(stored, 40u);
  EXPECT_EQ(spared, kRead);
  EXPECT_GT(evicted, 20u);
  EXPECT_EQ(kept(*store, kUseFilled - 5, kUseFilled), 5u);  // the oldest were evicted first
}

TEST_F(EvictionUseTest, WhatOtherProcessesReadIsSparedOnceItsUseWasWritten) {
  ASSERT_EQ(put_elsewhere(0, kUseFilled), 0u);
  make_uses_older();
  const auto store = Store::open(capped());
  ASSERT_EQ(used_lately(*store), 0u);
  const pid_t reader = ::fork();
  if (reader == 0) {
    const auto own = Store::open(capped());
    for (const auto until = base::Deadline::after(60s); !until.passed();)
      for (std::uint32_t number = 0; number < kRead; ++number)
        if (!holds(*own, number, kUseSize)) ::_exit(1);
    ::_exit(2);
  }
  EXPECT_TRUE(base::poll_until(soon(), [&] { return used_lately(*store) == kRead; }));
  const std::uint64_t evicted = put_elsewhere(1000, 1030) + put_elsewhere(1030, 1040);
  const std::uint64_t spared = kept(*store, 0, kRead);
  int status = 0;
  EXPECT_EQ(::waitpid(reader, &status, WNOHANG), 0) << "the reader missed one";
  ::kill(reader, SIGKILL);
  ::waitpid(reader, &status, 0);
  report("what another process reads", {{"read", kRead}, {"spared", spared}, {"evicted", evicted}});
  EXPECT_EQ(spared, kRead);
  EXPECT_GT(evicted, 20u);
}

}  // namespace
}  // namespace kiln::cache::test

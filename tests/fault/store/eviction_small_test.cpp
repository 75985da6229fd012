// Eviction of records smaller than a page. It removes as much as is needed, and no put waits for long.
#include <lmdb.h>

#include <ctime>

#include "cache/store/file/pieces.hpp"
#include "tests/fault/store/fixture.hpp"

namespace kiln::cache::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kSmallRecords = 10'000;

class SmallRecords : public StoreFixture {
 protected:
  StoreOptions capped() const {
    StoreOptions o = options();
    o.cap_bytes = 48 << 20;
    return o;
  }
  void fill() const {
    MDB_env* env = nullptr;
    MDB_txn* txn = nullptr;
    MDB_dbi dbi = 0;
    ASSERT_EQ(mdb_env_create(&env), 0);
    ASSERT_EQ(mdb_env_set_mapsize(env, 48 << 20), 0);
    ASSERT_EQ(mdb_env_open(env, data_file().c_str(), MDB_NOSUBDIR | MDB_NOLOCK, 0600), 0);
    ASSERT_EQ(mdb_txn_begin(env, nullptr, 0, &txn), 0);
    ASSERT_EQ(mdb_dbi_open(txn, nullptr, 0, &dbi), 0);
    const auto now = static_cast<std::uint64_t>(std::time(nullptr));
    for (std::uint32_t number = 0; number < kSmallRecords; ++number) {
      ASSERT_EQ(write_record(txn, dbi, key_of(number), encode(record_of(number, 1000)), MDB_APPEND), 0);
    }
    for (std::uint32_t number = 0; number < kSmallRecords; ++number) {
      const std::int64_t order = -1 - std::int64_t{number} * 7919 % kSmallRecords;  // not the keys' order
      ASSERT_EQ(write_use(txn, dbi, key_of(number), {order, now, 1, now}), 0);
    }
    ASSERT_EQ(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
  }
};

TEST_F(SmallRecords, PutEvictsAboutAsMuchAsItNeeds) {
  open();
  fill();
  const auto store = Store::open(capped());
  ASSERT_EQ(store->stats().entries, kSmallRecords);
  const auto start = base::Clock::now();
  std::uint64_t evicted = 0, puts = 0;
  while (evicted == 0 && puts < 100) {
    const auto result = store->put(with_key(key_of(20'000 + puts), record_of(puts, 50'000)));
    ASSERT_EQ(result.put, Put::stored) << result.detail;
    evicted = result.evicted;
    ++puts;
  }
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(base::Clock::now() - start);
  report("eviction of 5 % among 1 KB records", {{"entries", kSmallRecords},
                                                {"puts", puts},
                                                {"evicted", evicted},
                                                {"ms", static_cast<std::uint64_t>(took.count())}});
  EXPECT_GT(evicted, 0u);
  EXPECT_LT(evicted, kSmallRecords / 4);  // the eviction needed 5 % of the bytes
}

}  // namespace
}  // namespace kiln::cache::test

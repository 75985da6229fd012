// The store in one process: records, misses and their reasons.
#include "cache/store/store.hpp"

#include <lmdb.h>

#include <algorithm>

#include "cache/store/file/pieces.hpp"

#include "kiln/error.hpp"
#include "support/nightly.hpp"
#include "tests/cache/fixture.hpp"

namespace kiln::cache::test {
namespace {

class StoreTest : public StoreFixture {};

TEST_F(StoreTest, ReturnsWhatWasPut) {
  const auto store = open();
  EXPECT_EQ(store->put(record_of(1)).put, Put::stored);
  EXPECT_TRUE(holds(*store, 1));
}

TEST_F(StoreTest, MissIsAbsentBeforeAnyPut) {
  const auto result = open()->get(key_of(1), "", soon());
  EXPECT_FALSE(result.record);
  EXPECT_EQ(result.miss, Miss::absent);
}

TEST_F(StoreTest, KeepsRecordsOfAnySize) {
  const auto store = open();
  // Sizes around the piece size: the last piece is full, has one byte, or is missing.
  const std::size_t overhead = encode(record_of(0, 0)).size();
  std::uint32_t number = 0;
  for (const std::size_t size : {0ul, 1ul, 4080 - overhead - 1, 4080 - overhead, 4080 - overhead + 1,
                                 8160 - overhead, 50'000ul, 2'000'000ul}) {
    const Record record = record_of(number, size);
    ASSERT_EQ(store->put(record).put, Put::stored) << size;
    const auto got = store->get(key_of(number), record.key_text, soon());
    ASSERT_TRUE(got.record) << size;
    EXPECT_TRUE(same(*got.record, record)) << size;
    ++number;
  }
  EXPECT_EQ(store->stats().entries, number);
}

TEST_F(StoreTest, KeepsEmptyRecord) {
  const auto store = open();
  EXPECT_EQ(store->put(with_key(key_of(1), Record{})).put, Put::stored);
  const auto got = store->get(key_of(1), "", soon());
  ASSERT_TRUE(got.record);
  EXPECT_TRUE(same(*got.record, Record{}));
}

TEST_F(StoreTest, KeepsFactsLongerThanOnePiece) {
  const auto store = open();
  Record record = record_of(1);
  record.facts = std::string(30'000, 'f');
  ASSERT_EQ(store->put(record).put, Put::stored);
  std::string listed;
  store->list([&](const Entry& entry) { listed = entry.facts; });
  EXPECT_EQ(listed, record.facts);
  EXPECT_TRUE(same(*store->peek(key_of(1), soon()), record));
}

TEST_F(StoreTest, RefusesRecordThatIsTooLarge) {
  KILN_NIGHTLY_ONLY();
  const auto store = open();
  const auto result = store->put(record_of(1, 268'000'000));
  EXPECT_EQ(result.put, Put::full);
  EXPECT_NE(result.detail.find("at most"), std::string::npos) << result.detail;
}

TEST_F(StoreTest, SecondPutOfTheSameIsPresentAndWritesNothing) {
  const auto store = open();
  ASSERT_EQ(store->put(record_of(1)).put, Put::stored);
  const auto before = base::FileStamp::of(data_file());
  EXPECT_EQ(store->put(record_of(1)).put, Put::present);
  EXPECT_EQ(base::FileStamp::of(data_file()), before);
}

TEST_F(StoreTest, OtherKeyTextIsAMissAndIsReplacedByAPut) {
  const auto store = open();
  ASSERT_EQ(store->put(record_of(1, 20'000)).put, Put::stored);
  const auto result = store->get(key_of(1), "another key with the same hash", soon());
  EXPECT_FALSE(result.record);
  EXPECT_EQ(result.miss, Miss::other_key_text);

  const Record other = with_key(key_of(1), record_of(2, 100));  // fewer pieces than the stored record
  ASSERT_EQ(store->put(other).put, Put::stored);
  EXPECT_TRUE(same(*store->peek(key_of(1), soon()), other));
  EXPECT_EQ(store->get(key_of(1), record_of(1).key_text, soon()).miss, Miss::other_key_text);
  EXPECT_EQ(store->stats().entries, 1u);
}

TEST_F(StoreTest, ShorterReplacementLeavesNoPieces) {
  const auto store = open();
  ASSERT_EQ(store->put(record_of(1, 400'000)).put, Put::stored);
  const auto before = store->stats().live_bytes;
  ASSERT_EQ(store->put(with_key(key_of(1), record_of(2, 100))).put, Put::stored);
  EXPECT_LT(store->stats().live_bytes, before - 390'000);
}

TEST_F(StoreTest, FindsEveryToolchainOfASpecialisation) {
  const auto store = open();
  for (const std::uint32_t toolchain : {0u, 7u, 0xffffffffu})
    ASSERT_EQ(store->put(with_key(key_of(5, toolchain), record_of(toolchain, 9000))).put, Put::stored);
  ASSERT_EQ(store->put(with_key(key_of(4, 1), record_of(4))).put, Put::stored);
  ASSERT_EQ(store->put(with_key(key_of(6, 1), record_of(6))).put, Put::stored);
  const auto found = store->find(key_of(5).specialisation, soon());
  ASSERT_EQ(found.size(), 3u);
  for (const Record& record : found) EXPECT_TRUE(record.key.specialisation == key_of(5).specialisation);
  EXPECT_EQ(found[1].key, key_of(5, 7));
  EXPECT_TRUE(same(found[1], record_of(7, 9000)));
  EXPECT_TRUE(store->find(key_of(9).specialisation, soon()).empty());
}

TEST_F(StoreTest, FindsTheLastSpecialisationOfAll) {
  const auto store = open();
  Key last;
  last.specialisation.bytes.fill(0xff);
  last.toolchain.bytes.fill(0xff);
  ASSERT_EQ(store->put(with_key(last, record_of(1))).put, Put::stored);
  EXPECT_EQ(store->find(last.specialisation, soon()).size(), 1u);
  std::size_t listed = 0;
  store->list([&](const Entry&) { ++listed; });
  EXPECT_EQ(listed, 1u);
}

TEST_F(StoreTest, PeekNeedsNoKeyText) {
  const auto store = open();
  EXPECT_FALSE(store->peek(key_of(1), soon()));
  ASSERT_EQ(store->put(record_of(1)).put, Put::stored);
  EXPECT_TRUE(same(*store->peek(key_of(1), soon()), record_of(1)));
}

TEST_F(StoreTest, TextsAreReadWithoutTheImage) {
  const auto store = open();
  const Record record = record_of(1, 50'000);
  ASSERT_EQ(store->put(record).put, Put::stored);
  const auto text = store->peek_text(key_of(1), soon());
  ASSERT_TRUE(text);
  EXPECT_EQ(text->facts, record.facts);
  EXPECT_EQ(text->key_text, record.key_text);
  EXPECT_FALSE(store->peek_text(key_of(2), soon()));
}

TEST_F(StoreTest, WhatWentAwaySinceAListingIsAbsentAndNotDamaged) {
  const auto store = open(), another = open();
  for (const bool cleared : {true, false}) {
    for (std::uint32_t number = 0; number < 3; ++number)
      ASSERT_EQ(store->put(record_of(number)).put, Put::stored);
    std::uint32_t listed = 0;
    const Listed said = store->list([&](const Entry& entry) {
      if (listed++ == 0 && cleared) another->clear(soon());
      if (listed == 1 && !cleared) another->gc(0, soon());
      const auto record = store->peek(entry.key, soon());
      EXPECT_FALSE(record);
      EXPECT_EQ(record.miss, Miss::absent);
      EXPECT_EQ(store->peek_text(entry.key, soon()).miss, Miss::absent);
    });
    EXPECT_EQ(listed, 3u);
    EXPECT_EQ(said.unreadable, 0u);
  }
}

TEST_F(StoreTest, WhatIsWrongIsDamagedAndNotAbsent) {
  const auto store = open();
  for (std::uint32_t number = 0; number < 2; ++number)
    ASSERT_EQ(store->put(record_of(number)).put, Put::stored);
  std::string bytes = base::read_file(data_file())->bytes;
  for (std::uint32_t number = 0; number < 2; ++number) {  // the head of record 0, the image of record 1
    const std::string part = number == 0 ? "facts of 0key text" : record_of(1).image.substr(2000, 64);
    ASSERT_NE(bytes.find(part), std::string::npos);
    bytes[bytes.find(part)] ^= 1;
  }
  base::write_file(data_file(), bytes, 0600);
  EXPECT_EQ(store->peek(key_of(0), soon()).miss, Miss::damaged);
  EXPECT_EQ(store->peek_text(key_of(0), soon()).miss, Miss::damaged);
  EXPECT_EQ(store->peek(key_of(1), soon()).miss, Miss::damaged);
  EXPECT_TRUE(store->peek_text(key_of(1), soon())) << "the image is not read";
}

TEST_F(StoreTest, ListsARangeOfKeysBothEndsIncluded) {
  const auto store = open();
  std::vector<Key> keys;
  for (std::uint32_t i = 0; i < 50; ++i) {
    keys.push_back(key_of(i));
    ASSERT_EQ(store->put(with_key(keys.back(), record_of(i, 9000))).put, Put::stored);
  }
  std::sort(keys.begin(), keys.end());
  const auto listed = [&](const Key& first, const Key& last) {
    std::vector<Key> out;
    const Listed said = store->list(first, last, [&](const Entry& entry) { out.push_back(entry.key); });
    EXPECT_EQ(said.shown, out.size());
    EXPECT_EQ(said.unreadable, 0u);
    return out;
  };
  EXPECT_EQ(listed(keys[10], keys[19]), std::vector<Key>(keys.begin() + 10, keys.begin() + 20));
  EXPECT_EQ(listed(keys[49], keys[49]), std::vector<Key>{keys[49]});
  EXPECT_EQ(listed(keys.front(), keys.back()), keys);
  EXPECT_EQ(listed(keys[20], keys[10]), std::vector<Key>{});
}

TEST_F(StoreTest, ListsEntriesInKeyOrderWithTheirFacts) {
  const auto store = open();
  for (const std::uint32_t number : {3u, 1u, 2u})
    ASSERT_EQ(store->put(record_of(number, number * 10'000)).put, Put::stored);
  std::vector<Entry> entries;
  store->list([&](const Entry& entry) { entries.push_back(entry); });
  ASSERT_EQ(entries.size(), 3u);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(entries[i].key == key_of(i + 1));
    EXPECT_EQ(entries[i].facts, record_of(i + 1).facts);
    EXPECT_EQ(entries[i].image_bytes, (i + 1) * 10'000);
    EXPECT_EQ(entries[i].stored_bytes, encode(record_of(i + 1, (i + 1) * 10'000)).size());
  }
}

TEST_F(StoreTest, ListingMayUseTheStoreAndThrow) {
  const auto store = open();
  ASSERT_EQ(store->put(record_of(1)).put, Put::stored);
  store->list([&](const Entry& entry) {
    EXPECT_TRUE(store->peek(entry.key, soon()));
    EXPECT_EQ(store->put(record_of(2)).put, Put::stored);  // works, as list() does not hold the gate here
  });
  EXPECT_THROW(store->list([](const Entry&) { throw std::runtime_error("enough"); }), std::runtime_error);
  EXPECT_EQ(store->put(record_of(3)).put, Put::stored);
}

TEST_F(StoreTest, StatsCountEntriesAndBytes) {
  const auto store = open();
  EXPECT_EQ(store->stats().entries, 0u);
  for (std::uint32_t number = 0; number < 20; ++number)
    ASSERT_EQ(store->put(record_of(number, 50'000)).put, Put::stored);
  const auto stats = store->stats();
  EXPECT_EQ(stats.entries, 20u);
  EXPECT_GE(stats.live_bytes, 20 * 50'000u);
  EXPECT_LT(stats.live_bytes, 20 * 60'000u);
  EXPECT_GE(stats.file_bytes, stats.live_bytes);
  EXPECT_EQ(stats.file_bytes, base::FileStamp::of(data_file())->size);
}

TEST_F(StoreTest, ListsTenThousandEntries) {
  const auto store = open();
  constexpr std::uint32_t kEntries = 10'000;
  {
    // One transaction, as ten thousand synced puts take minutes on a busy disk.
    MDB_env* env = nullptr;
    MDB_txn* txn = nullptr;
    MDB_dbi dbi = 0;
    ASSERT_EQ(mdb_env_create(&env), 0);
    ASSERT_EQ(mdb_env_set_mapsize(env, 1 << 30), 0);
    ASSERT_EQ(mdb_env_open(env, data_file().c_str(), MDB_NOSUBDIR | MDB_NOLOCK, 0600), 0);
    ASSERT_EQ(mdb_txn_begin(env, nullptr, 0, &txn), 0);
    ASSERT_EQ(mdb_dbi_open(txn, nullptr, 0, &dbi), 0);
    for (std::uint32_t number = 0; number < kEntries; ++number)
      ASSERT_EQ(write_record(txn, dbi, key_of(number), encode(record_of(number))), 0);
    ASSERT_EQ(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
  }
  std::uint32_t listed = 0;
  store->list([&](const Entry& entry) { listed += entry.key == key_of(listed); });
  EXPECT_EQ(listed, kEntries);
  EXPECT_EQ(store->stats().entries, kEntries);
}

TEST_F(StoreTest, ChurnDoesNotGrowTheFile) {
  put_wait_ = std::chrono::seconds(60);
  const auto store = open();
  for (std::uint32_t number = 0; number < 64; ++number)
    ASSERT_EQ(store->put(record_of(number, 20'000 + number * 997)).put, Put::stored);
  const auto before = store->stats().file_bytes;
  for (std::uint32_t round = 64; round < 500; ++round) {
    Record record = record_of(round, 20'000 + round * 7919 % 63'000);
    ASSERT_EQ(store->put(with_key(key_of(round % 64), record)).put, Put::stored);
  }
  const auto after = store->stats();
  EXPECT_LT(after.file_bytes, after.live_bytes + after.live_bytes / 4) << before;
}

TEST_F(StoreTest, RecordOverTheCapIsReportedAndTheStoreLivesOn) {
  StoreOptions small = options();
  small.cap_bytes = kSmallestCap;
  const auto store = Store::open(small);
  ASSERT_EQ(store->put(record_of(1, 100'000)).put, Put::stored);
  const auto result = store->put(record_of(2, 3'000'000));
  EXPECT_EQ(result.put, Put::full);
  EXPECT_FALSE(result.detail.empty());
  EXPECT_TRUE(holds(*store, 1, 100'000));
  EXPECT_EQ(store->get(key_of(2), record_of(2).key_text, soon()).miss, Miss::absent);
  EXPECT_EQ(store->put(record_of(3, 100'000)).put, Put::stored);
}

TEST_F(StoreTest, TextsOfOutcomesAreTheirNames) {
  EXPECT_EQ(to_string(Miss::absent), "absent");
  EXPECT_EQ(to_string(Miss::unreadable), "unreadable");
  EXPECT_EQ(to_string(Put::stored), "stored");
  EXPECT_EQ(to_string(Put::failed), "failed");
}

TEST_F(StoreTest, KeepsWhatIsThereUnlessAPutReplacesIt) {
  const auto store = open();
  Record other = record_of(1);
  other.facts = "other facts", other.image.clear();
  ASSERT_EQ(store->put(record_of(1)).put, Put::stored);
  EXPECT_EQ(store->put(other).put, Put::present);
  EXPECT_TRUE(holds(*store, 1));
  EXPECT_EQ(store->put(other, put_wait_, Existing::replaced).put, Put::stored);
  const auto got = store->get(key_of(1), other.key_text, soon());
  ASSERT_TRUE(got.record);
  EXPECT_TRUE(same(*got.record, other));
  EXPECT_EQ(store->put(other, put_wait_, Existing::replaced).put, Put::present) << "the same";
  EXPECT_EQ(store->stats().entries, 1u);
  EXPECT_TRUE(store->verify().damaged.empty());
}

}  // namespace
}  // namespace kiln::cache::test

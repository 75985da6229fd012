// Many records in one transaction: the result is that of single puts, with fewer syncs.
#include <fcntl.h>

#include <algorithm>
#include <random>

#include "base/fd.hpp"
#include "cache/store/file/pages.hpp"
#include "tests/cache/fixture.hpp"

using namespace kiln;
using namespace kiln::cache;
using namespace kiln::cache::test;

namespace {

std::vector<Record> records(std::uint32_t first, std::uint32_t last, std::size_t image = 5000) {
  std::vector<Record> out;
  for (std::uint32_t number = first; number < last; ++number) out.push_back(record_of(number, image));
  return out;
}

std::size_t count(const std::vector<PutResult>& results, Put put) {
  return static_cast<std::size_t>(
      std::count_if(results.begin(), results.end(), [put](const PutResult& r) { return r.put == put; }));
}

struct PutMany : StoreFixture {
  std::uint64_t transaction() const {
    const base::Fd file(::open(data_file().c_str(), O_RDONLY | O_CLOEXEC));
    return newest_snapshot(file.get()).transaction;
  }
};

}  // namespace

TEST_F(PutMany, StoresAllOfThem) {
  const auto store = open();
  EXPECT_EQ(count(store->put_many(records(0, 300)), Put::stored), 300u);
  for (std::uint32_t number = 0; number < 300; ++number) EXPECT_TRUE(holds(*store, number));
  EXPECT_TRUE(open()->verify().damaged.empty());
  EXPECT_EQ(store->stats().entries, 300u);
}

TEST_F(PutMany, InManyBatchesOfManySizesTheFileStaysSound) {
  const auto store = open();
  std::uint32_t number = 0;
  for (int batch = 0; batch < 30; ++batch) {
    const std::uint32_t size = 1 + static_cast<std::uint32_t>(batch * 7 % 23);
    ASSERT_EQ(count(store->put_many(records(number, number + size, 100 + 4000u * (batch % 5))), Put::stored),
              size);
    number += size;
  }
  EXPECT_TRUE(store->verify().damaged.empty());
  EXPECT_EQ(store->stats().entries, number);
  EXPECT_EQ(open()->put(record_of(number)).put, Put::stored) << "by another process";
}

TEST_F(PutMany, CountsWhatIsThere) {
  const auto store = open();
  store->put_many(records(5, 10));
  const auto results = store->put_many(records(0, 12));
  EXPECT_EQ(count(results, Put::present), 5u);
  EXPECT_EQ(count(results, Put::stored), 7u);
}

TEST_F(PutMany, ReplacesWhatHasAnotherKeyText) {
  const auto store = open();
  Record other = record_of(3);
  other.key_text = "another";
  ASSERT_EQ(store->put(other).put, Put::stored);
  EXPECT_EQ(count(store->put_many(records(0, 6)), Put::stored), 6u);
  EXPECT_TRUE(holds(*store, 3));
}

TEST_F(PutMany, InAnyOrderItIsOneTransaction) {
  const auto store = open();
  store->put_many(records(100, 110));
  auto all = records(0, 200);
  std::shuffle(all.begin(), all.end(), std::mt19937(5));
  const std::uint64_t before = transaction();
  const auto results = store->put_many(all);
  EXPECT_EQ(transaction(), before + 1);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool there = !(all[i].key < key_of(100)) && all[i].key < key_of(110);
    EXPECT_EQ(results[i].put, there ? Put::present : Put::stored) << i;
  }
  for (std::uint32_t number = 0; number < 200; ++number) EXPECT_TRUE(holds(*store, number));
  EXPECT_TRUE(store->verify().damaged.empty());
}

TEST_F(PutMany, AKeyThatComesTwiceIsStoredOnce) {
  const auto store = open();
  auto all = records(0, 4);
  std::swap(all[0], all[3]);
  all.push_back(all[1]);
  const auto results = store->put_many(all);
  EXPECT_EQ(count(results, Put::stored), 4u);
  EXPECT_EQ(results.back().put, Put::present);
}

TEST_F(PutMany, MakesRoomWhenTheyDoNotFit) {
  StoreOptions small = options();
  small.cap_bytes = kSmallestCap;
  const auto store = Store::open(small);
  for (std::uint32_t first = 0; first < 1000; first += 100) {
    const auto results = store->put_many(records(first, first + 100));
    EXPECT_EQ(count(results, Put::stored), 100u);
  }
  EXPECT_TRUE(holds(*store, 999));
  EXPECT_TRUE(store->verify().damaged.empty());
  EXPECT_LE(store->stats().file_bytes, kSmallestCap);
}

TEST_F(PutMany, IntoAReadOnlyStoreSaysSoForEach) {
  open()->put(record_of(0));
  EXPECT_EQ(count(open_read_only()->put_many(records(1, 4)), Put::read_only), 3u);
}

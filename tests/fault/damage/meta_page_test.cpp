// Flipped bits in the newest meta page that leave it valid but wrong.
#include "tests/fault/damage/heal_fixture.hpp"

namespace kiln::cache::test {
namespace {

class MetaPage : public HealFixture {
 protected:
  void fill(std::uint64_t cap, std::uint32_t count) const {
    ASSERT_EQ(child([&] {
                const auto store = open_with_cap(cap);
                for (std::uint32_t number = 0; number < count; ++number)
                  if (store->put(record_of(number, kLarge)).put != Put::stored) return 1;
                return 0;
              }),
              0);
  }
};

TEST_F(MetaPage, AFlippedPageCountIsFoundAndDoesNotMakeEvictionRunWild) {
  constexpr std::uint64_t kCap = std::uint64_t{16} << 20;
  constexpr std::uint32_t kCount = 120, kMore = 3;
  fill(kCap, kCount);
  const std::uint64_t at = newest_meta() + kBranchPages, pages = u64_at(at) ^ 2048;
  poke(at, &pages, sizeof pages);
  EXPECT_EQ(open_read_only()->verify().damaged.size(), 1u);

  EXPECT_EQ(child([&] {
              const auto store = open_with_cap(kCap);
              for (std::uint32_t number = 1000; number < 1000 + kMore; ++number)
                if (store->put(record_of(number, kLarge)).put != Put::stored) return 1;
              return 0;
            }),
            0);
  const auto store = open_with_cap(kCap);
  EXPECT_TRUE(store->verify().damaged.empty());
  std::uint32_t there = 0;
  for (std::uint32_t number = 0; number < kCount; ++number) there += holds(*store, number, kLarge);
  for (std::uint32_t number = 1000; number < 1000 + kMore; ++number) {
    EXPECT_TRUE(holds(*store, number, kLarge));
  }
  report("a page count with one bit flipped", {{"entries", kCount}, {"kept", there}});
  EXPECT_EQ(there, kCount) << "all of it is under the cap";
}

TEST_F(MetaPage, ATransactionNumbersTopBitDoesNotMakeTheNewestTheOldest) {
  constexpr std::uint64_t kCap = std::uint64_t{4} << 20;
  constexpr std::uint32_t kCount = 30, kMore = 12;
  for (const std::uint64_t bits : {std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    ::unlink(data_file().c_str());
    fill(kCap, kCount);
    const std::uint64_t at = newest_meta() + kTransaction, transaction = u64_at(at) | bits;
    poke(at, &transaction, sizeof transaction);
    std::uint64_t acknowledged = 0, lost = 0;
    for (std::uint32_t number = 1000; number < 1000 + kMore; ++number)
      acknowledged += child([&] {
                        const auto store = open_with_cap(kCap);
                        return store->put(record_of(number, kLarge)).put == Put::stored ? 0 : 1;
                      }) == 0;
    const auto store = open_with_cap(kCap);
    for (std::uint32_t number = 1000; number < 1000 + kMore; ++number)
      lost += holds(*store, number, kLarge) ? 0 : 1;
    report("a transaction number's upper bits set", {{"acknowledged", acknowledged}, {"lost", lost}});
    EXPECT_EQ(acknowledged, kMore);
    EXPECT_EQ(lost, 0u);
    EXPECT_TRUE(store->verify().damaged.empty());
  }
}

}  // namespace
}  // namespace kiln::cache::test

// The wall clock jumps by years, back and forward. The order of use decides which records are evicted.
// No record is lost, and none stays for ever.
#include <ctime>

#include "tests/fault/store/fixture.hpp"
#include "tests/support/shifted_clock.hpp"

namespace kiln::cache::test {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kTenYears = 10ll * 365 * 24 * 3600;
constexpr std::uint32_t kBefore = 30, kAfter = 60, kUsed = 10, kNever = 1000;
constexpr std::size_t kSize = 100'000;

class ClockTest : public StoreFixture {
 protected:
  void TearDown() override { kiln_shift_clock(0); }
  StoreOptions capped() const {
    StoreOptions o = options();
    o.cap_bytes = 8 << 20;
    o.put_wait = 20s;
    o.upkeep = 1h;
    return o;
  }
  /// Puts [first, last) in a separate process, because a process spares the records that it put itself.
  void put_elsewhere(std::uint32_t first, std::uint32_t last) {
    EXPECT_EQ(child([&] {
                const auto store = Store::open(capped());
                for (std::uint32_t number = first; number < last; ++number)
                  if (store->put(record_of(number, kSize)).put != Put::stored) return 1;
                return 0;
              }),
              0);
  }
  void use_elsewhere(std::uint32_t first, std::uint32_t last) {
    EXPECT_EQ(child([&] {
                const auto store = Store::open(capped());
                for (std::uint32_t number = first; number < last; ++number)
                  if (!holds(*store, number, kSize)) return 1;
                store->write_uses(soon());
                return 0;
              }),
              0);
  }
  /// Number of missing records, when these are the first in `order`; otherwise kNever.
  std::uint32_t gone(const std::vector<std::uint32_t>& order) const {
    const auto store = Store::open(capped());
    std::uint32_t out = 0;
    bool kept = false;
    for (const std::uint32_t number : order) {
      const auto got = store->peek(key_of(number), soon());
      if (got && !same(*got, record_of(number, kSize))) return kNever;
      if (!got && kept) return kNever;
      got ? void(kept = true) : void(++out);
    }
    return out;
  }

  void jump(std::int64_t shift, const char* fault) {
    put_elsewhere(0, kBefore);
    kiln_shift_clock(shift);
    put_elsewhere(kBefore, kAfter);
    use_elsewhere(0, kUsed);

    std::vector<std::uint32_t> order;  // least recently used first
    for (std::uint32_t number = kUsed; number < kAfter; ++number) order.push_back(number);
    for (std::uint32_t number = 0; number < kUsed; ++number) order.push_back(number);
    ASSERT_EQ(gone(order), 0u);
    std::uint32_t out_of_order = 0, rounds = 0, last = 0;
    for (std::uint32_t next = 2000; last < kAfter && rounds < 30; ++rounds, next += 10) {
      put_elsewhere(next, next + 10);
      const std::uint32_t now = gone(order);
      if (now == kNever || now < last) ++out_of_order;
      last = now;
    }
    const auto store = Store::open(capped());
    std::uint64_t listed = 0, strange = 0;
    const auto today = static_cast<std::uint64_t>(std::time(nullptr));
    store->list([&](const Entry& entry) {
      ++listed;
      strange += entry.last_used_s > today || entry.last_used_s + 3600 < today;
    });
    const auto collected = store->gc(1 << 20, soon());
    std::uint64_t after = 0;
    store->list([&](const Entry&) { ++after; });
    report(fault, {{"entries", kAfter},
                   {"evicted", last},
                   {"out of order", out_of_order},
                   {"rounds", rounds},
                   {"listed", listed},
                   {"with another time", strange},
                   {"gc kept", collected.kept},
                   {"gc dropped", collected.dropped}});
    EXPECT_EQ(out_of_order, 0u);
    EXPECT_EQ(last, kAfter);  // no record stays for ever
    EXPECT_EQ(strange, 0u);
    EXPECT_EQ(collected.kept, after);
    EXPECT_EQ(collected.kept + collected.dropped, listed);
    EXPECT_GT(collected.kept, 5u);
    EXPECT_EQ(store->verify().damaged.size(), 0u);
  }
};

TEST_F(ClockTest, SetBackTenYearsTheOrderOfUseStillDecides) { jump(-kTenYears, "clock set back 10 years"); }

TEST_F(ClockTest, SetForwardTenYearsTheOrderOfUseStillDecides) {
  jump(kTenYears, "clock set forward 10 years");
}

TEST_F(ClockTest, UsesOfTheFutureAreWrittenAgainOnceTheClockIsRight) {
  kiln_shift_clock(kTenYears);
  put_elsewhere(0, 3);
  kiln_shift_clock(0);
  use_elsewhere(0, 2);
  std::vector<std::uint64_t> times;
  open()->list([&](const Entry& entry) { times.push_back(entry.last_used_s); });
  ASSERT_EQ(times.size(), 3u);
  const auto now = static_cast<std::uint64_t>(std::time(nullptr));
  EXPECT_LE(times[0], now);
  EXPECT_LE(times[1], now);
  EXPECT_GT(times[2], now);
}

}  // namespace
}  // namespace kiln::cache::test

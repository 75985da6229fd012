// Reads from a disk that fails, at each read in turn. The result is a miss or the right record. A disk that
// works again has lost nothing: a passing fault must not be healed by dropping records.
#include "tests/fault/store/fixture.hpp"

namespace kiln::cache::test {
namespace {

constexpr std::uint32_t kNumbers = 6;
constexpr int kMaxSteps = 400;

class ReadFault : public FaultFixture, public ::testing::WithParamInterface<const char*> {};

TEST_P(ReadFault, IsAMissAndLosesNothing) {
  {
    const auto store = open();
    for (std::uint32_t number = 0; number < kNumbers; ++number) ASSERT_EQ(put(*store, number), Put::stored);
  }
  Shared<std::atomic<std::uint64_t>> injected, misses;
  int steps = 0;
  for (bool reached = true; reached && steps < kMaxSteps; ++steps) {
    const std::uint64_t before = *injected;
    const int status = child([&] {
      kiln_fault_arm(("pread@data.mdb:" + std::to_string(steps + 1) + GetParam()).c_str());
      std::shared_ptr<Store> store;
      try {
        store = open();
      } catch (const std::exception&) {
        ++*misses;
      }
      for (std::uint32_t number = 0; store && number < kNumbers; ++number) {
        const Record expected = record_of(number, kImage);
        const auto got = store->get(key_of(number), expected.key_text, soon());
        ++promises_->reads;
        if (!got.record) ++*misses;
        if (got.record && !same(*got.record, expected)) ++promises_->wrong;
      }
      *injected += kiln_fault_fired();
      kiln_fault_arm(nullptr);
      if (store) check(*store);
      return 0;
    });
    ASSERT_EQ(status, 0) << "at read " << steps + 1;
    ASSERT_EQ(check_afresh(), 0);
    reached = *injected > before;
  }
  report(std::string("pread") + GetParam(), {{"injected", *injected},
                                             {"misses", *misses},
                                             {"reads", promises_->reads},
                                             {"lost", promises_->lost},
                                             {"wrong", promises_->wrong}});
  EXPECT_LT(steps, kMaxSteps);
  EXPECT_GT(*injected, 0u);
  EXPECT_EQ(promises_->lost, 0u);
  EXPECT_EQ(promises_->wrong, 0u);
}

using LookedAtTwice = FaultFixture;

/// A read that fails three times in a row looks like damage, like a meta page that was read during a
/// write. A second look finds nothing wrong.
TEST_F(LookedAtTwice, NoReaderBelievesWhatOnlyOneLookSaw) {
  const auto store = open();
  for (std::uint32_t number = 0; number < kNumbers; ++number) ASSERT_EQ(put(*store, number), Put::stored);
  const auto listed = [&] {
    std::uint64_t entries = 0;
    const Listed said = store->list([&](const Entry&) { ++entries; });
    return entries == kNumbers && said.unreadable == 0;
  };
  const auto verified = [&] {
    const Verified said = store->verify();
    return said.entries == kNumbers && said.damaged.empty();
  };
  const std::pair<const char*, std::function<bool()>> readers[] = {
      {"get", [&] { return holds(*store, 1, kImage); }},
      {"peek", [&] { return store->peek(key_of(1), soon()).has_value(); }},
      {"peek_text", [&] { return store->peek_text(key_of(1), soon()).has_value(); }},
      {"find", [&] { return store->find(key_of(1).specialisation, soon()).size() == 1; }},
      {"list", listed},
      {"stats", [&] { return store->stats().entries == kNumbers; }},
      {"verify", verified}};
  for (const auto& [name, read] : readers) {
    bool reached = true;
    int steps = 0;
    for (; reached && steps < kMaxSteps; ++steps) {
      std::string rules;
      for (int i = 1; i <= 3; ++i) rules += "pread@data.mdb:" + std::to_string(steps + i) + ":EIO;";
      kiln_fault_arm(rules.c_str());
      EXPECT_TRUE(read()) << name << ", at read " << steps + 1;
      reached = kiln_fault_fired() == 3;
      kiln_fault_arm(nullptr);
    }
    EXPECT_GT(steps, 1) << name;
    EXPECT_LT(steps, kMaxSteps) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Disk, ReadFault, ::testing::Values(":EIO", ":short", "+:EIO"));

}  // namespace
}  // namespace kiln::cache::test

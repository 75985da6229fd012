#include "cache/store/use_log.hpp"

#include <algorithm>

#include "tests/cache/fixture.hpp"

namespace kiln::cache::test {
namespace {

using namespace std::chrono_literals;

TEST(UseLogTest, CountsUsesUntilTheyAreTaken) {
  UseLog log;
  EXPECT_TRUE(log.note(key_of(1)));
  EXPECT_FALSE(log.note(key_of(1)));
  EXPECT_FALSE(log.note(key_of(2)));
  auto taken = log.take(1h);
  std::sort(taken.begin(), taken.end());
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0], std::pair(key_of(1), std::uint64_t{2}));
  EXPECT_EQ(taken[1], std::pair(key_of(2), std::uint64_t{1}));
  EXPECT_TRUE(log.take(1h).empty());
  EXPECT_TRUE(log.note(key_of(3)));  // the log was empty again
}

TEST(UseLogTest, WhatAProcessHoldsIsUsedAgainAtEveryRefresh) {
  UseLog log;
  log.note(key_of(1));
  EXPECT_EQ(log.take(1h).size(), 1u);
  EXPECT_EQ(log.held(), std::vector{key_of(1)});
  const auto refreshed = log.take(0h);
  ASSERT_EQ(refreshed.size(), 1u);
  EXPECT_EQ(refreshed[0], std::pair(key_of(1), std::uint64_t{0}));  // still held, without further uses
  EXPECT_TRUE(log.take(1h).empty());
}

}  // namespace
}  // namespace kiln::cache::test

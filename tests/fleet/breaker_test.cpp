// The breaker: when a failing server is no longer asked. The test sets the clock.
#include "cache/fleet/net/breaker.hpp"

#include <gtest/gtest.h>

#include <set>

using namespace kiln::fleet;
using namespace std::chrono_literals;

namespace {
struct RemoteBreaker : ::testing::Test {
  Breaker::Time now = Breaker::Time() + 1h;
  Breaker breaker{{}, 1};
  void fail(int times) {
    for (int i = 0; i < times; ++i) {
      ASSERT_TRUE(breaker.allow(now));
      breaker.failed(now);
    }
  }
};
}  // namespace

TEST_F(RemoteBreaker, OpensAfterThreeFailuresInARow) {
  fail(2);
  ASSERT_TRUE(breaker.allow(now));
  breaker.succeeded();
  fail(2);
  EXPECT_EQ(breaker.state(), Breaker::State::closed);
  fail(1);
  EXPECT_EQ(breaker.state(), Breaker::State::open);
  EXPECT_FALSE(breaker.allow(now));
  EXPECT_EQ(breaker.times_opened(), 1u);
}

TEST_F(RemoteBreaker, LetsOneThroughAfterThePause) {
  fail(3);
  EXPECT_FALSE(breaker.allow(now + 23900ms));
  EXPECT_TRUE(breaker.allow(now + 36100ms));
  EXPECT_EQ(breaker.state(), Breaker::State::probing);
  EXPECT_FALSE(breaker.allow(now + 36100ms));
  breaker.succeeded();
  EXPECT_TRUE(breaker.allow(now + 36100ms));
  EXPECT_EQ(breaker.state(), Breaker::State::closed);
}

TEST_F(RemoteBreaker, OpensAgainWhenTheProbeFails) {
  fail(3);
  now += 40s;
  ASSERT_TRUE(breaker.allow(now));
  breaker.failed(now);
  EXPECT_EQ(breaker.state(), Breaker::State::open);
  EXPECT_FALSE(breaker.allow(now + 23900ms));
  EXPECT_EQ(breaker.times_opened(), 2u);
}

TEST_F(RemoteBreaker, HasTheNextCallerProbeWhenAProbeWasAbandoned) {
  fail(3);
  now += 40s;
  ASSERT_TRUE(breaker.allow(now));
  breaker.abandoned();
  EXPECT_TRUE(breaker.allow(now));
}

TEST_F(RemoteBreaker, CountsThoseUnderWayOnceWhenItOpens) {
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(breaker.allow(now));
  for (int i = 0; i < 10; ++i) breaker.failed(now);
  EXPECT_EQ(breaker.times_opened(), 1u);
}

TEST(RemoteBreakerJitter, SpreadsTheFleetOverTwentyPercent) {
  std::set<long> seconds;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Breaker breaker({}, seed);
    const Breaker::Time now{};
    for (int i = 0; i < 3; ++i) breaker.failed(now);
    const auto pause = breaker.opens_until() - now;
    EXPECT_GE(pause, 24s);
    EXPECT_LE(pause, 36s);
    seconds.insert(std::chrono::duration_cast<std::chrono::seconds>(pause).count());
  }
  EXPECT_GE(seconds.size(), 12u);  // every number of seconds from 24 to 35
}

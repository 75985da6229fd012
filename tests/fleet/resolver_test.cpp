// Names are resolved in the background, for any behaviour of the DNS server.
#include "cache/fleet/net/resolver.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/child.hpp"
#include "support/time_limit.hpp"

using namespace kiln;
using namespace kiln::fleet;
using namespace std::chrono_literals;

namespace {

base::Deadline never() { return base::Deadline::never(); }

std::vector<Address> loopback() { return {*Address::numeric("127.0.0.1", 1)}; }

/// A DNS server that answers once a test opens it.
struct Gate {
  std::atomic<bool> open{false};
  std::atomic<int> asked{0}, answered{0};
};
Resolver::Lookup behind(const std::shared_ptr<Gate>& gate) {
  return [gate](const std::string&, std::uint16_t) {
    ++gate->asked;
    while (!gate->open) std::this_thread::sleep_for(1ms);
    ++gate->answered;
    return loopback();
  };
}

base::Clock::duration time_of(const std::function<void()>& work) {
  const auto began = base::Clock::now();
  work();
  return base::Clock::now() - began;
}

}  // namespace

TEST(RemoteResolver, AsksNobodyAboutAddresses) {
  Resolver resolver(
      [](const std::string&, std::uint16_t) -> std::vector<Address> { throw std::logic_error("asked"); });
  for (const char* host : {"127.0.0.1", "::1", "fe80::1%lo"})
    EXPECT_EQ(resolver.addresses(host, 5, 0s, never()).size(), 1u) << host;
}

TEST(RemoteResolver, KnowsLocalhost) {
  Resolver resolver;
  EXPECT_FALSE(resolver.addresses("localhost", 1, 20s, never()).empty());
}

TEST(RemoteResolver, WaitsNoLongerThanItsPatienceAndOnlyOnce) {
  const auto gate = std::make_shared<Gate>();
  Resolver resolver(behind(gate));
  const auto first = time_of([&] { EXPECT_TRUE(resolver.addresses("h", 1, 100ms, never()).empty()); });
  EXPECT_GE(first, 95ms);
  EXPECT_LT(first, at_most(3s));
  // The time that callers wait counts from the start of the lookup, which is still under way.
  const auto second = time_of([&] {
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(resolver.addresses("h", 1, 100ms, never()).empty());
  });
  EXPECT_LT(second, at_most(3s));
  EXPECT_EQ(gate->asked, 1);
  gate->open = true;
  EXPECT_TRUE(base::poll_until(base::Deadline::after(10s),
                               [&] { return !resolver.addresses("h", 1, 0s, never()).empty(); }));
  EXPECT_EQ(gate->asked, 1);
}

TEST(RemoteResolver, HeedsTheCallersDeadline) {
  const auto gate = std::make_shared<Gate>();
  Resolver resolver(behind(gate));
  EXPECT_LT(time_of([&] { resolver.addresses("h", 1, 60s, base::Deadline::after(20ms)); }), at_most(5s));
  gate->open = true;
}

TEST(RemoteResolver, MayBeDestroyedWhileTheSystemHangs) {
  const auto gate = std::make_shared<Gate>();
  {
    Resolver resolver(behind(gate));
    resolver.ask("h", 1);
    ASSERT_TRUE(base::poll_until(base::Deadline::after(10s), [&] { return gate->asked == 1; }));
  }
  gate->open = true;  // the thread ends; it owns everything that it still uses
  EXPECT_TRUE(base::poll_until(base::Deadline::after(10s),
                               [&] { return gate->answered == 1 && gate.use_count() == 1; }));
}

TEST(RemoteResolver, RemembersThatThereIsNoSuchName) {
  std::atomic<int> asked{0};
  Resolver resolver([&](const std::string&, std::uint16_t) {
    ++asked;
    return std::vector<Address>();
  });
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(resolver.addresses("h", 1, 5s, never()).empty());
  EXPECT_EQ(asked, 1);
}

TEST(RemoteResolver, KeepsAnAddressThatItDoubtsUntilThereIsAnother) {
  std::atomic<int> asked{0};
  Resolver resolver(
      [&](const std::string&, std::uint16_t) { return asked++ == 0 ? loopback() : std::vector<Address>(); });
  EXPECT_EQ(resolver.addresses("h", 1, 20s, never()).size(), 1u);
  resolver.doubt("h", 1);
  EXPECT_EQ(resolver.addresses("h", 1, 20s, never()).size(), 1u);
  EXPECT_EQ(asked, 1);  // not asked again: the answer is younger than a second
  std::this_thread::sleep_for(1100ms);
  EXPECT_EQ(resolver.addresses("h", 1, 20s, never()).size(), 1u);
  EXPECT_TRUE(base::poll_until(base::Deadline::after(10s), [&] { return asked == 2; }));
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(resolver.addresses("h", 1, 20s, never()).size(), 1u);  // an empty answer changes nothing
}

TEST(RemoteResolver, AsksAnewInAForkedChild) {
  if (const char* why = kiln::testing::cannot_fork_busy()) GTEST_SKIP() << why;
  const auto gate = std::make_shared<Gate>();
  Resolver resolver(behind(gate));
  resolver.ask("h", 1);
  ASSERT_TRUE(base::poll_until(base::Deadline::after(10s), [&] { return gate->asked == 1; }));
  EXPECT_EQ(kiln::testing::in_child([&] {
              gate->open = true;
              return resolver.addresses("h", 1, 30s, never()).size() == 1 ? 0 : 1;
            }),
            0);
  gate->open = true;
}

TEST(RemoteResolver, AProcessEndsWhileTheSystemHangs) {
  if (const char* why = kiln::testing::cannot_fork_busy()) GTEST_SKIP() << why;
  const auto began = base::Clock::now();
  EXPECT_EQ(kiln::testing::in_child([&]() -> int {
              static Resolver of_the_process([](const std::string&, std::uint16_t) {
                std::this_thread::sleep_for(1h);
                return std::vector<Address>();
              });
              EXPECT_TRUE(of_the_process.addresses("h", 1, 10ms, never()).empty());
              std::exit(7);  // destructors run while the thread still hangs
            }),
            7);
  EXPECT_LT(base::Clock::now() - began, at_most(20s));
}

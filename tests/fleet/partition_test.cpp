// A node is cut off from the fleet's server and comes back. The breaker's pause is shortened from half a
// minute. tests/runtime/path/fleet_partition_test.cpp has the real breaker.
#include <gtest/gtest.h>

#include "cache/fleet/redis/backend.hpp"
#include "cache/fleet/redis/keys.hpp"
#include "cache/fleet/tier.hpp"
#include "fleet/client_calls.hpp"
#include "fleet/redis_server.hpp"
#include "fleet/trust_fixture.hpp"
#include "support/network_namespace.hpp"
#include "support/time_limit.hpp"

using namespace kiln;
using namespace kiln::fleet;
using namespace std::chrono_literals;
using kiln::testing::Network;
using kiln::testing::RedisServer;

namespace {

constexpr auto kPause = 400ms;

/// The deadlines of 100 ms to connect and 150 ms for an exchange, times ten for a busy machine.
constexpr auto kCutOffBounded = 2500ms;

class RemotePartition : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!RedisServer::installed()) GTEST_SKIP() << "redis-server is not installed";
    KILN_NEEDS_NETWORK();
    network_.emplace();
    servers_.emplace(*network_, 254);
    host_.emplace(*network_, 1);
    {
      const auto inside = servers_->inside();
      server_.emplace(
          std::vector<std::string>{"--bind", servers_->address(), "127.0.0.1", "--protected-mode", "no"});
    }
    inside_.emplace(*host_);
    TierOptions options;
    options.url = Url::parse("redis://" + servers_->address() + ':' + std::to_string(server_->port()));
    options.fleet = true, options.who = "test";
    options.signer = std::make_shared<const trust::SigningKey>(kiln::testing::signing_key(1));
    options.breaker.pause = kPause;
    tier_.emplace(std::move(options), counts_);
  }

  /// Asks the tier like an engine that compiles at once when the entry is missing.
  Tier::Reply ask(std::uint8_t number) {
    const PublishedRecord entry = kiln::testing::some_entry(number);
    const auto began = base::Clock::now();
    Tier::Reply reply =
        tier_->ask({.key = entry.key, .key_text = entry.key_text, .acceptable = {}, .on_wait = {}});
    EXPECT_LT(base::Clock::now() - began, at_most(kCutOffBounded));
    return reply;
  }
  void publish(std::uint8_t number, std::shared_ptr<HeldLease> lease = nullptr) {
    tier_->publish(kiln::testing::some_entry(number), {}, std::move(lease), Tier::Full::wait);
    EXPECT_TRUE(tier_->flush(base::Deadline::after(20s)));
  }
  ServerStatus status() { return tier_->backend().health().front(); }

  /// Keeps the calling thread in the host's network for the whole test.
  struct Within {
    explicit Within(const Network::Host& host) : inside(host.inside()) {}
    const kiln::testing::NetworkNamespace::Inside inside;
  };
  std::optional<Network> network_;
  std::optional<Network::Host> servers_, host_;
  std::optional<RedisServer> server_;
  std::optional<Within> inside_;
  const std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
  std::optional<Tier> tier_;
};

}  // namespace

TEST_F(RemotePartition, ANodeThatWasCutOffComesBackByItself) {
  publish(1);
  ASSERT_TRUE(ask(1).entry);
  host_->unplug();
  // First the open connection gets no answer, then no connection can be made.
  std::uint8_t number = 10;
  while (status().breaker != Breaker::State::open && number < 20) {
    const Tier::Reply reply = ask(number++);
    EXPECT_FALSE(reply.entry || reply.lease || reply.waited);
  }
  EXPECT_EQ(number, 13) << "three failures";
  EXPECT_EQ(status().count(Fault::timeout), 1u);
  EXPECT_EQ(status().count(Fault::connect), 2u);
  // One probe follows each pause, and its failure prolongs the pause.
  ASSERT_TRUE(base::poll_until(base::Deadline::after(30s), [&] {
    ask(20);
    return status().times_opened >= 3;
  }));
  EXPECT_GE(counts_->remote_miss_breaker, 1u);
  publish(30);
  EXPECT_EQ(counts_->remote_puts_failed, 1u);

  host_->plug();
  ASSERT_TRUE(base::poll_until(base::Deadline::after(30s), [&] { return ask(1).entry.has_value(); }));
  EXPECT_EQ(status().breaker, Breaker::State::closed);
  const std::uint64_t stored = counts_->remote_puts;
  ASSERT_TRUE(base::poll_until(base::Deadline::after(30s), [&] {
    publish(30);
    return counts_->remote_puts > stored;
  }));
  EXPECT_TRUE(base::poll_until(base::Deadline::after(30s), [&] { return ask(30).entry.has_value(); }));
}

TEST_F(RemotePartition, ALeaseOutlivesAShortPartition) {
  const Tier::Reply reply = ask(1);
  ASSERT_TRUE(reply.lease);
  host_->unplug();
  std::this_thread::sleep_for(3500ms);  // long enough to lose a renewal
  host_->plug();
  Client there(fleet::test::options(server_->unix_url()));
  const std::string name = lease_key(kiln::testing::some_entry(1).key);
  EXPECT_TRUE(base::poll_until(base::Deadline::after(30s), [&] {
    return there.call({.words = {"PTTL", name}, .tag = {}}, base::Deadline::never()).reply.integer > 8000;
  })) << "6.5 s were left of its 10, and it is renewed";
  EXPECT_EQ(counts_->remote_leases_lost, 0u);
}

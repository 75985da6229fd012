// The tier over a server: memory runs out, and writers die between two commands.
#include "cache/fleet/tier.hpp"

#include <gtest/gtest.h>
#include <pthread.h>

#include <new>
#include <thread>

#include "cache/fleet/redis/client.hpp"
#include "cache/fleet/redis/keys.hpp"
#include "fleet/bad_server.hpp"
#include "fleet/redis_server.hpp"
#include "fleet/trust_fixture.hpp"

using namespace kiln;
using namespace kiln::fleet;
using namespace kiln::testing;
using namespace std::chrono_literals;

namespace {

/// Makes allocations in the tier's thread of leases fail.
std::atomic<bool> g_no_memory{false};

bool is_thread_of_leases() noexcept {
  char name[16] = "";
  return ::pthread_getname_np(::pthread_self(), name, sizeof name) == 0 &&
         std::string_view(name) == "kiln-remote";
}

}  // namespace

// Not inlined: otherwise the compiler sees that memory of malloc is deleted, and warns.
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (g_no_memory && is_thread_of_leases()) throw std::bad_alloc();
  if (void* out = std::malloc(size)) return out;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return g_no_memory && is_thread_of_leases() ? nullptr : std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* at) noexcept { std::free(at); }
[[gnu::noinline]] void operator delete(void* at, std::size_t) noexcept { std::free(at); }

namespace {

TierOptions options(const std::string& url) {
  TierOptions out;
  out.url = Url::parse(url);
  out.fleet = true;
  out.signer = std::make_shared<const trust::SigningKey>(signing_key(1));
  out.timeouts = {.connect = 5s, .read = 5s};
  return out;
}

class TierOfRedis : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!RedisServer::installed()) GTEST_SKIP() << "redis-server is not installed";
  }
};

TEST_F(TierOfRedis, LeasesAgainAfterItHadNoMemory) {
  RedisServer server;
  const auto counts = std::make_shared<Counts>();
  Tier tier(options(server.unix_url()), counts);
  const PublishedRecord mine = some_entry(1), foreign = some_entry(2), later = some_entry(3);
  const Command theirs{
      {"SET", lease_key(foreign.key), "0123:another"}, tag_of(foreign.key.specialisation), 64};
  Client another({.url = Url::parse(server.unix_url())});
  ASSERT_TRUE(another.call(theirs, base::Deadline::never()));
  Tier::Reply held = tier.ask({.key = mine.key, .key_text = mine.key_text, .acceptable = {}, .on_wait = {}});
  EXPECT_TRUE(held.lease);
  std::atomic<bool> waits = false;
  std::thread waiter([&] {
    const Tier::Reply reply =
        tier.ask({.key = foreign.key, .key_text = foreign.key_text, .acceptable = {}, .on_wait = [&] {
                    waits = true;
                  }});
    EXPECT_TRUE(reply.waited);
    EXPECT_FALSE(reply.entry || reply.lease) << "it is let go";
  });
  EXPECT_TRUE(base::poll_until(base::Deadline::after(20s), [&] { return waits.load(); }));
  g_no_memory = true;
  waiter.join();
  g_no_memory = false;
  held.lease.reset();
  const Tier::Reply reply =
      tier.ask({.key = later.key, .key_text = later.key_text, .acceptable = {}, .on_wait = {}});
  EXPECT_TRUE(reply.lease);
  EXPECT_EQ(counts->remote_leases, 2u);
}

TEST(Tier, AWriterThatDiesBetweenItsCommandsHidesNoEntryFromOtherToolchains) {
  std::vector<std::string> done;
  std::mutex mutex;
  BadServer server([&](Peer& peer) {
    const auto words = peer.command();
    const std::lock_guard lock(mutex);
    if (!words.empty()) done.push_back(words[0]);  // the writer's only command
  });
  {
    const auto counts = std::make_shared<Counts>();
    Tier tier(options(server.url()), counts);
    tier.publish(some_entry(), {}, nullptr, Tier::Full::wait);
    EXPECT_TRUE(tier.flush(base::Deadline::after(20s)));
    EXPECT_EQ(counts->remote_puts_failed, 1u);
  }
  const std::lock_guard lock(mutex);
  EXPECT_EQ(done, std::vector<std::string>{"HSET"}) << "a row without its entry is a look in vain";
}

}  // namespace

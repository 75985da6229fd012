// The fleet's tier in an engine: for every behaviour of the server, each kernel is
// served within the deadlines.
#include <sys/wait.h>

#include <csignal>

#include "cache/fleet/redis/client.hpp"
#include "cache/fleet/redis/keys.hpp"
#include "cache/fleet/tier.hpp"
#include "kiln/error.hpp"
#include "runtime/path/fleet_fixture.hpp"
#include "runtime/service/preparation.hpp"
#include "support/time_limit.hpp"
#include "tests/fleet/client_calls.hpp"
#include "tests/fleet/redis_server.hpp"
#include "tests/support/child.hpp"

namespace kiln::testing {
namespace {

using namespace std::chrono_literals;

class Redis : public FleetTest {
 protected:
  void SetUp() override {
    if (!RedisServer::installed()) GTEST_SKIP() << "no redis-server on this machine";
    FleetTest::SetUp();
  }
  static std::unique_ptr<fleet::Client> client(const RedisServer& server) {
    return std::make_unique<fleet::Client>(fleet::test::options(server.unix_url()));
  }
  static fleet::Reply ask(fleet::Client& client, std::vector<std::string> words) {
    auto answer = client.call(fleet::Command{std::move(words), {}, 1 << 24}, base::Deadline::never());
    EXPECT_TRUE(answer) << answer.detail;
    return std::move(answer.reply);
  }
};

TEST_F(Redis, TheBreakersStatesAreSeenInStats) {
  RedisServer server;
  Service service(node("a", server.unix_url()));
  EXPECT_EQ(stats_of(service).remote_state, KILN_REMOTE_NONE) << "nobody has asked yet";
  compile(service, "scale", {Dtype::f32, 1});
  service.core().path().flush();
  kiln_stats s = stats_of(service);
  EXPECT_EQ(s.remote_state, KILN_REMOTE_WORKS);
  EXPECT_EQ(s.remote_servers, 1);
  EXPECT_EQ(s.remote_puts, 1u);
  EXPECT_GT(s.remote_bytes_out, 1000u);
  EXPECT_GT(s.remote_p99_ms, 0);
  server.pause();
  for (int n = 2; n <= 4; ++n) compile(service, "scale", {Dtype::f32, n});
  s = stats_of(service);
  EXPECT_EQ(s.remote_state, KILN_REMOTE_BROKEN);
  EXPECT_GE(s.remote_miss_timeout, 1u);
  const auto start = base::Clock::now();
  for (int n = 5; n <= 8; ++n) compile(service, "scale", {Dtype::f32, n});
  EXPECT_GE(stats_of(service).remote_miss_breaker, 4u);
  EXPECT_LT(base::Clock::now() - start, at_most(4s));
  server.resume();
}

TEST_F(Redis, AFullServerTakesNothingAndTheKernelIsServed) {
  RedisServer server({"--maxmemory", "1", "--maxmemory-policy", "noeviction"});  // full without any key
  Service service(node("a", server.patient_url()));
  EXPECT_EQ(compile(service, "scale", {Dtype::f32, 1}).outcome, Outcome::compiled);
  EXPECT_TRUE(service.core().path().flush(base::Deadline::after(10s)));
  const kiln_stats s = stats_of(service);
  EXPECT_EQ(s.remote_puts, 0u);
  EXPECT_EQ(s.remote_miss_absent + s.remote_miss_refused, 1u);
  Service again(node("b", server.patient_url()));
  EXPECT_EQ(compile(again, "scale", {Dtype::f32, 1}).outcome, Outcome::compiled);
}

TEST_F(Redis, AWrongPasswordIsAMissAndARotatedOneWorksAfterARestart) {
  RedisServer server({"--requirepass", "first"});
  const auto url = [&](const std::string& password) { return server.unix_url() + "?password=" + password; };
  {
    Service right(node("a", url("first")));
    compile(right, "scale", {Dtype::f32, 1});
  }
  Service wrong(reader("b", url("second")));
  EXPECT_EQ(compile(wrong, "scale", {Dtype::f32, 1}).outcome, Outcome::compiled);
  EXPECT_EQ(stats_of(wrong).remote_miss_refused + stats_of(wrong).remote_miss_breaker, 1u);
  fleet::Client admin(fleet::test::options(url("first")));
  ask(admin, {"CONFIG", "SET", "requirepass", "second"});
  Service rotated(reader("c", url("second")));
  EXPECT_EQ(compile(rotated, "scale", {Dtype::f32, 1}).outcome, Outcome::remote);
}

TEST_F(Redis, AMillionKeysInTheServerCostNothingMore) {
  RedisServer server({"--enable-debug-command", "yes"});
  {
    Service a(node("a", server.patient_url()));
    for (int n = 1; n <= 20; ++n) compile(a, "scale", {Dtype::f32, n});
  }
  const auto redis = client(server);
  redis->call(fleet::Command{{"DEBUG", "POPULATE", "1000000", "kiln:1:{0}:e:"}, {}, 1024},
              base::Deadline::never());
  ASSERT_TRUE(base::poll_until(base::Deadline::after(60s), [&] {
    const auto size = redis->call(fleet::Command{{"DBSIZE"}, {}, 64}, base::Deadline::never());
    return size && size.reply.integer > 1'000'000;
  }));
  Service b(reader("b", server.patient_url()));
  std::vector<double> ms;
  for (int n = 1; n <= 20; ++n) {
    const auto start = base::Clock::now();
    EXPECT_EQ(compile(b, "scale", {Dtype::f32, n}).outcome, Outcome::remote);
    ms.push_back(std::chrono::duration<double, std::milli>(base::Clock::now() - start).count());
  }
  Delays delays{ms};
  std::printf("among 10^6 keys: a remote hit through the whole path p50 %.2f ms, most %.2f ms\n",
              delays.at(0.5), delays.at(1));
}

TEST_F(Redis, AFlushedServerIsFilledAgain) {
  RedisServer server;
  Service a(node("a", server.patient_url())), b(node("b", server.patient_url()));
  compile(a, "scale", {Dtype::f32, 1});
  a.core().path().flush();
  ask(*client(server), {"FLUSHALL"});
  EXPECT_EQ(compile(b, "scale", {Dtype::f32, 1}).outcome, Outcome::compiled);
  b.core().path().flush();
  Service c(reader("c", server.patient_url()));
  EXPECT_EQ(compile(c, "scale", {Dtype::f32, 1}).outcome, Outcome::remote);
}

/// Takes the key's lease like another node.
void hold_lease(fleet::Client& client, const Key& key, int milliseconds) {
  const auto answer = client.call(
      fleet::Command{
          {"SET", fleet::lease_key(key), "0123:another", "PX", std::to_string(milliseconds)}, {}, 1024},
      base::Deadline::never());
  ASSERT_TRUE(answer);
}

class Waiting : public Redis {
 protected:
  Key key_of(int n) {
    Options off = options();
    off.cache_dir = tree_.at("d");
    Service service(off);
    return compile(service, "scale", {Dtype::f32, n}).image->key;
  }
};

TEST_F(Waiting, ACallersDeadlineEndsHisWaitAndNotTheFlight) {
  RedisServer server;
  const auto redis = client(server);
  hold_lease(*redis, key_of(1), 1500);
  Service service(node("a", server.patient_url()));
  auto& scale = service.open("scale", KILN_DEVICE_NONE, "sm_90a");
  runtime::GetRequest hasty;
  hasty.deadline = base::Deadline::after(200ms);
  const std::vector<Value> values = {Dtype::f32, 1};
  EXPECT_THROW(
      {
        try {
          scale.compile(values, hasty);
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Errc::deadline);
          throw;
        }
      },
      Error);
  const auto got = scale.compile(values);
  EXPECT_EQ(got.outcome, Outcome::waited)
      << "of the flight that went on, and compiled when the lease was gone";
  EXPECT_EQ(stats_of(service).compiles, 1u);
  EXPECT_EQ(stats_of(service).remote_waits, 1u);
}

TEST_F(Waiting, EndingTheServiceEndsTheWait) {
  RedisServer server;
  const auto redis = client(server);
  hold_lease(*redis, key_of(1), 60'000);
  const auto service = std::make_unique<Service>(node("a", server.patient_url()));
  std::thread caller([&] {
    try {
      compile(*service, "scale", {Dtype::f32, 1});
      ADD_FAILURE() << "it was served";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::deadline) << error.what();
    }
  });
  std::this_thread::sleep_for(500ms);
  const auto start = base::Clock::now();
  service->core().path().end_compiles();
  caller.join();
  EXPECT_LT(base::Clock::now() - start, at_most(1s));
}

TEST_F(Waiting, ATokenThatIsNotOursIsNeverTouched) {
  RedisServer server;
  const auto redis = client(server);
  const Key key = key_of(1);
  hold_lease(*redis, key, 60'000);
  Options o = node("a", server.patient_url());
  o.remote_budget_s = 0.5;
  Service service(o);
  EXPECT_EQ(compile(service, "scale", {Dtype::f32, 1}).outcome, Outcome::compiled);
  service.core().path().flush();
  EXPECT_EQ(ask(*redis, {"GET", fleet::lease_key(key)}).text, "0123:another");
  EXPECT_EQ(stats_of(service).remote_wait_timeouts, 1u);
}

TEST_F(Redis, ThreadsOfOneProcessAskOnce) {
  RedisServer server;
  {
    Service a(node("a", server.patient_url()));
    compile(a, "scale", {Dtype::f32, 1});
  }
  Service b(reader("b", server.patient_url()));
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) threads.emplace_back([&] { compile(b, "scale", {Dtype::f32, 1}); });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(stats_of(b).remote_hits, 1u);
  EXPECT_EQ(stats_of(b).compiles, 0u);
}

TEST_F(Redis, AForkedChildAsksAndWritesForItself) {
  if (const char* why = cannot_fork_busy()) GTEST_SKIP() << why;
  RedisServer server;
  Service service(node("a", server.patient_url()));
  compile(service, "scale", {Dtype::f32, 1});
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    int status = 1;
    try {
      Options o = node("b", server.patient_url());
      const auto inherited = compile(service, "scale", {Dtype::f32, 2});
      service.core().path().flush();
      status = inherited.outcome == Outcome::compiled ? 0 : 2;
    } catch (...) {
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  compile(service, "scale", {Dtype::f32, 3});
  service.core().path().flush();
  Service reads(reader("c", server.patient_url()));
  for (int n = 1; n <= 3; ++n)
    EXPECT_EQ(compile(reads, "scale", {Dtype::f32, n}).outcome, Outcome::remote) << n;
}

TEST_F(Redis, ASealedServicesPrepareFetchesAndItsGetDoesNot) {
  RedisServer server;
  {
    Service a(node("a", server.patient_url()));
    for (int n = 1; n <= 2; ++n) compile(a, "scale", {Dtype::f32, n});
  }
  Options o = reader("b", server.patient_url());
  o.mode = Mode::sealed;
  Service sealed(o);
  EXPECT_THROW(compile(sealed, "scale", {Dtype::f32, 1}), Error);
  // Bytes are not compared, as the tier's thread reports the miss to the server meanwhile.
  const auto asked = stats_of(sealed);
  EXPECT_EQ(asked.remote_hits + asked.remote_miss_absent + asked.remote_miss_timeout +
                asked.remote_miss_unreachable + asked.remote_miss_refused + asked.remote_miss_protocol +
                asked.remote_miss_breaker,
            0u)
      << "no entry was asked for";
  runtime::PrepareRequest request;
  request.plan = "[[prewarm]]\ntemplate = \"scale\"\nT = \"f32\"\nN = [1, 2]\n";
  request.file = "plan", request.image_only = true, request.device = KILN_DEVICE_NONE,
  request.arch = "sm_90a";
  request.may_compile = false;
  const auto preparation = runtime::Preparation::begin(sealed.scopes(), sealed.own_scope(), request);
  EXPECT_TRUE(preparation->wait(base::Deadline::after(20s)));
  EXPECT_EQ(stats_of(sealed).remote_hits, 2u);
  EXPECT_EQ(compile(sealed, "scale", {Dtype::f32, 1}).outcome, Outcome::memory);
}

TEST_F(Redis, WhatASealedServiceMissesIsReported) {
  RedisServer server;
  Options o = reader("b", server.patient_url());
  o.mode = Mode::sealed;
  Service sealed(o);
  EXPECT_THROW(compile(sealed, "scale", {Dtype::f32, 1}), Error);
  sealed.seal();
  for (int round = 0; round < 3; ++round)
    for (int n = 1; n <= 4; ++n) EXPECT_THROW(compile(sealed, "scale", {Dtype::f32, n}), Error);
  ASSERT_TRUE(sealed.core().path().flush(base::Deadline::after(20s)));
  EXPECT_EQ(stats_of(sealed).remote_reported, 4u) << "each row once";
  EXPECT_EQ(stats_of(sealed).remote_miss_absent, 0u) << "and no entry was asked for";
}

TEST_F(Redis, ReportsAreKeptUntilTheServerHasThem) {
  RedisServer server;
  server.stop();
  fleet::TierOptions o;
  o.url = fleet::Url::parse(server.unix_url());
  o.breaker.pause = 500ms;
  const auto counts = std::make_shared<fleet::Counts>();
  fleet::Tier tier(std::move(o), counts);
  constexpr std::uint64_t kRows = 400;
  for (int round = 0; round < 2; ++round)
    for (std::uint64_t n = 0; n < kRows; ++n) tier.report_missing("row " + std::to_string(n));
  EXPECT_TRUE(tier.flush(base::Deadline::after(20s))) << "each was tried";
  EXPECT_EQ(counts->remote_reported, 0u);
  server.start();
  EXPECT_TRUE(base::poll_until(base::Deadline::after(30s), [&] { return counts->remote_reported == kRows; }))
      << counts->remote_reported;
  const auto length =
      client(server)->call(fleet::Command{{"XLEN", "kiln:1:missing"}, {}, 1024}, base::Deadline::after(20s));
  EXPECT_EQ(length.reply.integer, static_cast<std::int64_t>(kRows)) << "each row once";
}

TEST_F(Redis, OneWhoMayCompileDoesNotInheritTheRefusalOfOneWhoMayNot) {
  RedisServer server;
  Service service(reader("a", server.patient_url()));
  std::vector<std::thread> threads;
  std::atomic<int> compiled{0}, refused{0};
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      runtime::GetRequest request;
      request.past_seal = true, request.may_compile = i % 2 == 0;
      try {
        const std::vector<Value> values = {Dtype::f32, 1};
        service.open("scale", KILN_DEVICE_NONE, "sm_90a").compile(values, request);
        ++compiled;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::not_ready);
        ++refused;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_GE(compiled, 4);
  EXPECT_EQ(compiled + refused, 8);
}

}  // namespace
}  // namespace kiln::testing

// The fleet's tier within an engine: whatever the server does, every kernel is served, within the deadlines.
#include <sys/wait.h>

#include <csignal>

#include "bundle/secret_key.hpp"
#include "kiln/error.hpp"
#include "remote/redis_keys.hpp"
#include "remote/tier.hpp"
#include "runtime/preparation.hpp"
#include "runtime/service_fixture.hpp"
#include "tests/remote/bad_server.hpp"
#include "tests/remote/redis_server.hpp"
#include "tests/support/child.hpp"

namespace kiln::testing {
namespace {

using runtime::Service;
using namespace std::chrono_literals;

class RemoteTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    if (IsSkipped()) return;
    const bundle::SecretKey key = bundle::SecretKey::generate();
    tree_.write("fleet.key", key.file().bytes());
    tree_.write("fleet.pub", key.public_key().file());
    ::chmod(tree_.at("fleet.key").c_str(), 0600);
  }
  Options node(const std::string& name, const std::string& url) const {
    Options o = options();
    o.cache_dir = tree_.at(name);
    o.remote = url, o.remote_mode = "fleet", o.remote_sign = tree_.at("fleet.key");
    return o;
  }
  Options reader(const std::string& name, const std::string& url) const {
    Options o = options();
    o.cache_dir = tree_.at(name);
    o.remote = url, o.remote_key = tree_.at("fleet.pub");
    return o;
  }
  ~RemoteTest() override {
    for (const char* name : {"a", "b", "c", "d"}) forget(tree_.at(name));
  }
  static kiln_stats stats_of(Service& service) {
    kiln_stats out{};
    service.pipeline().counters().read(out);
    service.pipeline().read_tier(out);
    return out;
  }
  static std::uint64_t missed(const kiln_stats& s) {
    return s.remote_miss_timeout + s.remote_miss_unreachable + s.remote_miss_refused +
           s.remote_miss_protocol + s.remote_miss_breaker;
  }
};

/// What a kernel costs beyond its compile, in ms.
struct Delays {
  std::vector<double> ms;
  double p99() { return at(0.99); }
  double at(double share) {
    std::sort(ms.begin(), ms.end());
    return ms[static_cast<std::size_t>(share * static_cast<double>(ms.size() - 1))];
  }
};

class BrokenServers : public RemoteTest {
 protected:
  static constexpr int kKernels = 24;
  /// Every kernel is compiled, and each asks the tier in vain.
  kiln_stats every_kernel_is_served(const std::string& what, const std::string& url) {
    Service service(node("a", url));
    Delays delays;
    for (int n = 1; n <= kKernels; ++n) {
      const auto start = base::Clock::now();
      const auto got = compile(service, "scale", {Dtype::f32, n});
      const double ms = std::chrono::duration<double, std::milli>(base::Clock::now() - start).count();
      EXPECT_EQ(got.outcome, Outcome::compiled) << what;
      delays.ms.push_back(ms - got.image->facts.compile_ms);
    }
    const kiln_stats s = stats_of(service);
    std::printf(
        "%-28s beyond the compile: p50 %6.1f ms, p99 %6.1f ms, most %6.1f ms; state %d, misses %llu, "
        "breaker %llu, rejected %llu (timeout %llu, unreachable %llu, protocol %llu, refused %llu)\n",
        what.c_str(), delays.at(0.5), delays.p99(), delays.at(1), s.remote_state,
        (unsigned long long)missed(s), (unsigned long long)s.remote_miss_breaker,
        (unsigned long long)(s.remote_rejected_schema + s.remote_rejected_damaged),
        (unsigned long long)s.remote_miss_timeout, (unsigned long long)s.remote_miss_unreachable,
        (unsigned long long)s.remote_miss_protocol, (unsigned long long)s.remote_miss_refused);
    EXPECT_EQ(s.remote_hits, 0u) << what;
    EXPECT_EQ(missed(s) + s.remote_miss_absent + s.remote_rejected_schema + s.remote_rejected_key +
                  s.remote_rejected_signature + s.remote_rejected_damaged,
              static_cast<std::uint64_t>(kKernels))
        << what << ": each miss has one reason";
    EXPECT_LT(delays.at(1), 1500) << what;
    return s;
  }
};

TEST_F(BrokenServers, NobodyListens) {
  every_kernel_is_served("nobody listens", "redis://127.0.0.1:" + std::to_string(free_port()));
}
TEST_F(BrokenServers, AcceptsAndSaysNothing) {
  BadServer server([](Peer& peer) { peer.wait_for_the_end(); });
  every_kernel_is_served("accepts and says nothing", server.url());
}
TEST_F(BrokenServers, Garbage) {
  BadServer server([](Peer& peer) {
    while (!peer.command().empty() && peer.say("HTTP/1.1 400 Bad Request\r\n\r\n")) {
    }
  });
  every_kernel_is_served("garbage", server.url());
}
TEST_F(BrokenServers, AnnouncesGigabytes) {
  BadServer server([](Peer& peer) {
    peer.command();
    peer.say("*1000000000\r\n$99999999999\r\n");
    peer.wait_for_the_end();
  });
  every_kernel_is_served("announces gigabytes", server.url());
}
TEST_F(BrokenServers, AByteASecond) {
  BadServer server([](Peer& peer) {
    peer.command();
    for (const char c : std::string("$100000\r\n" + std::string(1000, 'x')))
      if (!peer.say(std::string(1, c)) || !peer.wait(1s)) return;
  });
  every_kernel_is_served("a byte a second", server.url());
}
TEST_F(BrokenServers, ClosesInMidValue) {
  BadServer server([](Peer& peer) {
    peer.command();
    peer.say("$100000\r\n" + std::string(5000, 'x'));
  });
  const kiln_stats s = every_kernel_is_served("closes in mid-value", server.url());
  EXPECT_GT(s.remote_miss_breaker, 0u) << "what it says to a SET is too large, and forgives it nothing";
}
TEST_F(BrokenServers, RefusesEverything) {
  BadServer server([](Peer& peer) {
    while (!peer.command().empty() && peer.say("-NOPERM this user has no permissions\r\n")) {
    }
  });
  every_kernel_is_served("refuses everything", server.url());
}
TEST_F(BrokenServers, FullOfAnotherSchemasEntries) {
  BadServer server([](Peer& peer) {
    for (;;) {
      const auto words = peer.command();
      if (words.empty()) return;
      std::string value = "kilnenv1";
      value += std::string("\x02\0\0\0", 4) + std::string(400, 'x');
      const bool fine = words[0] == "GET" ? peer.say_bulk(value) : peer.say("-ERR\r\n");
      if (!fine) return;
    }
  });
  every_kernel_is_served("another schema's entries", server.url());
}
TEST_F(BrokenServers, StoppedInTheMiddle) {
  if (!RedisServer::installed()) GTEST_SKIP() << "no redis-server on this machine";
  RedisServer server;
  server.pause();
  every_kernel_is_served("stopped (SIGSTOP)", server.unix_url());
  server.resume();
}

class Redis : public RemoteTest {
 protected:
  void SetUp() override {
    if (!RedisServer::installed()) GTEST_SKIP() << "no redis-server on this machine";
    RemoteTest::SetUp();
  }
  static std::unique_ptr<remote::Client> client(const RedisServer& server) {
    return std::make_unique<remote::Client>(
        remote::ClientOptions{.url = remote::Url::parse(server.unix_url())});
  }
  static remote::Reply ask(remote::Client& client, std::vector<std::string> words) {
    auto answer = client.call(remote::Command{std::move(words), {}, 1 << 24}, base::Deadline::never());
    EXPECT_TRUE(answer) << answer.detail;
    return std::move(answer.reply);
  }
};

TEST_F(Redis, TheBreakersStatesAreSeenInStats) {
  RedisServer server;
  Service service(node("a", server.unix_url()));
  EXPECT_EQ(stats_of(service).remote_state, KILN_REMOTE_NONE) << "nobody has asked yet";
  compile(service, "scale", {Dtype::f32, 1});
  service.pipeline().flush();
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
  EXPECT_LT(base::Clock::now() - start, 4s);
  server.resume();
}

TEST_F(Redis, AFullServerTakesNothingAndTheKernelIsServed) {
  RedisServer server({"--maxmemory", "1", "--maxmemory-policy", "noeviction"});  // full of itself
  Service service(node("a", server.unix_url()));
  EXPECT_EQ(compile(service, "scale", {Dtype::f32, 1}).outcome, Outcome::compiled);
  EXPECT_TRUE(service.pipeline().flush(base::Deadline::after(10s)));
  const kiln_stats s = stats_of(service);
  EXPECT_EQ(s.remote_puts, 0u);
  EXPECT_EQ(s.remote_miss_absent + s.remote_miss_refused, 1u);
  Service again(node("b", server.unix_url()));
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
  remote::Client admin({.url = remote::Url::parse(url("first"))});
  ask(admin, {"CONFIG", "SET", "requirepass", "second"});
  Service rotated(reader("c", url("second")));
  EXPECT_EQ(compile(rotated, "scale", {Dtype::f32, 1}).outcome, Outcome::remote);
}

TEST_F(Redis, AMillionKeysInTheServerCostNothingMore) {
  RedisServer server({"--enable-debug-command", "yes"});
  {
    Service a(node("a", server.unix_url()));
    for (int n = 1; n <= 20; ++n) compile(a, "scale", {Dtype::f32, n});
  }
  const auto redis = client(server);
  redis->call(remote::Command{{"DEBUG", "POPULATE", "1000000", "kiln:1:{0}:e:"}, {}, 1024},
              base::Deadline::never());
  ASSERT_TRUE(base::poll_until(base::Deadline::after(60s), [&] {
    const auto size = redis->call(remote::Command{{"DBSIZE"}, {}, 64}, base::Deadline::never());
    return size && size.reply.integer > 1'000'000;
  }));
  Service b(reader("b", server.unix_url()));
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
  Service a(node("a", server.unix_url())), b(node("b", server.unix_url()));
  compile(a, "scale", {Dtype::f32, 1});
  a.pipeline().flush();
  ask(*client(server), {"FLUSHALL"});
  EXPECT_EQ(compile(b, "scale", {Dtype::f32, 1}).outcome, Outcome::compiled);
  b.pipeline().flush();
  Service c(reader("c", server.unix_url()));
  EXPECT_EQ(compile(c, "scale", {Dtype::f32, 1}).outcome, Outcome::remote);
}

/// As another node would hold it.
void hold_lease(remote::Client& client, const Key& key, int milliseconds) {
  const auto answer = client.call(
      remote::Command{
          {"SET", remote::lease_key(key), "0123:another", "PX", std::to_string(milliseconds)}, {}, 1024},
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
  Service service(node("a", server.unix_url()));
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
  const auto service = std::make_unique<Service>(node("a", server.unix_url()));
  std::thread asker([&] {
    try {
      compile(*service, "scale", {Dtype::f32, 1});
      ADD_FAILURE() << "it was served";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::deadline) << error.what();
    }
  });
  std::this_thread::sleep_for(500ms);
  const auto start = base::Clock::now();
  service->pipeline().end_compiles();
  asker.join();
  EXPECT_LT(base::Clock::now() - start, 1s);
}

TEST_F(Waiting, ATokenThatIsNotOursIsNeverTouched) {
  RedisServer server;
  const auto redis = client(server);
  const Key key = key_of(1);
  hold_lease(*redis, key, 60'000);
  Options o = node("a", server.unix_url());
  o.remote_budget_s = 0.5;
  Service service(o);
  EXPECT_EQ(compile(service, "scale", {Dtype::f32, 1}).outcome, Outcome::compiled);
  service.pipeline().flush();
  EXPECT_EQ(ask(*redis, {"GET", remote::lease_key(key)}).text, "0123:another");
  EXPECT_EQ(stats_of(service).remote_wait_timeouts, 1u);
}

TEST_F(Redis, ThreadsOfOneProcessAskOnce) {
  RedisServer server;
  {
    Service a(node("a", server.unix_url()));
    compile(a, "scale", {Dtype::f32, 1});
  }
  Service b(reader("b", server.unix_url()));
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) threads.emplace_back([&] { compile(b, "scale", {Dtype::f32, 1}); });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(stats_of(b).remote_hits, 1u);
  EXPECT_EQ(stats_of(b).compiles, 0u);
}

TEST_F(Redis, AForkedChildAsksAndWritesForItself) {
  if (const char* why = cannot_fork_busy()) GTEST_SKIP() << why;
  RedisServer server;
  Service service(node("a", server.unix_url()));
  compile(service, "scale", {Dtype::f32, 1});
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    int status = 1;
    try {
      Options o = node("b", server.unix_url());
      const auto inherited = compile(service, "scale", {Dtype::f32, 2});
      service.pipeline().flush();
      status = inherited.outcome == Outcome::compiled ? 0 : 2;
    } catch (...) {
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  compile(service, "scale", {Dtype::f32, 3});
  service.pipeline().flush();
  Service reads(reader("c", server.unix_url()));
  for (int n = 1; n <= 3; ++n)
    EXPECT_EQ(compile(reads, "scale", {Dtype::f32, n}).outcome, Outcome::remote) << n;
}

TEST_F(Redis, ASealedServicesPrepareFetchesAndItsGetDoesNot) {
  RedisServer server;
  {
    Service a(node("a", server.unix_url()));
    for (int n = 1; n <= 2; ++n) compile(a, "scale", {Dtype::f32, n});
  }
  Options o = reader("b", server.unix_url());
  o.mode = Mode::sealed;
  Service sealed(o);
  EXPECT_THROW(compile(sealed, "scale", {Dtype::f32, 1}), Error);
  EXPECT_EQ(stats_of(sealed).remote_state, KILN_REMOTE_NONE) << "the network was not touched";
  runtime::PrepareRequest request;
  request.plan = "[[prewarm]]\ntemplate = \"scale\"\nT = \"f32\"\nN = [1, 2]\n";
  request.file = "plan", request.image_only = true, request.device = KILN_DEVICE_NONE,
  request.arch = "sm_90a";
  request.may_compile = false;
  const auto preparation = runtime::Preparation::begin(sealed, sealed.own_scope(), request);
  EXPECT_TRUE(preparation->wait(base::Deadline::after(20s)));
  EXPECT_EQ(stats_of(sealed).remote_hits, 2u);
  EXPECT_EQ(compile(sealed, "scale", {Dtype::f32, 1}).outcome, Outcome::memory);
}

TEST_F(Redis, OneWhoMayCompileDoesNotInheritTheRefusalOfOneWhoMayNot) {
  RedisServer server;
  Service service(reader("a", server.unix_url()));
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

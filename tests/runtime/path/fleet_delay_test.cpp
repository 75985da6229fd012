// The delay that a failing server adds to each kernel: at most the deadlines while the server is asked, and
// nothing while the breaker is open. KILN_SOAK_KERNELS=100 gives figures.
#include "cache/fleet/redis/client.hpp"
#include "cache/fleet/tier.hpp"
#include "runtime/path/fleet_fixture.hpp"
#include "support/network_namespace.hpp"
#include "support/nightly.hpp"
#include "tests/fleet/bad_server.hpp"
#include "tests/fleet/redis_server.hpp"

namespace kiln::testing {
namespace {

using namespace std::chrono_literals;

double ms_since(base::Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(base::Clock::now() - start).count();
}

class BrokenServers : public FleetTest {
 protected:
  static int kernels(int ordinarily) {
    const char* soak = std::getenv("KILN_SOAK_KERNELS");
    return soak ? std::atoi(soak) : ordinarily;
  }
  static void print(const std::string& what, const char* how, Delays& delays, const std::string& more) {
    std::printf("FIGURES %-26s %-22s added to %3zu kernels: p50 %6.1f ms, p99 %6.1f ms, most %6.1f ms; %s\n",
                what.c_str(), how, delays.ms.size(), delays.at(0.5), delays.p99(), delays.at(1),
                more.c_str());
  }

  /// Compiles all kernels in one engine, which stops asking the server after three failures. Prints the delay
  /// beyond the compile, which includes the cost of a miss without a tier.
  kiln_stats compile_all(const std::string& what, const std::string& url) {
    Options o = node("a", url);
    if (url.empty()) o.remote_mode.clear(), o.remote_sign.clear();
    Service service(o);
    Delays delays;
    const int count = kernels(24);
    for (int n = 1; n <= count; ++n) {
      const auto start = base::Clock::now();
      const auto got = compile(service, "scale", {Dtype::f32, n});
      delays.ms.push_back(ms_since(start) - got.image->facts.compile_ms);
      EXPECT_EQ(got.outcome, Outcome::compiled) << what;
    }
    const kiln_stats s = stats_of(service);
    const auto part = [](const char* name, std::uint64_t n) {
      return n ? std::string(name) + ' ' + std::to_string(n) + ' ' : std::string();
    };
    print(what, "one engine,", delays,
          "state " + std::to_string(s.remote_state) + ", misses: " + part("absent", s.remote_miss_absent) +
              part("timeout", s.remote_miss_timeout) + part("unreachable", s.remote_miss_unreachable) +
              part("protocol", s.remote_miss_protocol) + part("refused", s.remote_miss_refused) +
              part("breaker", s.remote_miss_breaker) +
              part("rejected", s.remote_rejected_schema + s.remote_rejected_damaged));
    EXPECT_EQ(s.remote_hits, 0u) << what;
    EXPECT_LT(delays.at(1), 30'000) << what << ": and not the budget of 60 s";
    return s;
  }
  /// Prints the delay of the tier alone, for engines that have asked no server before.
  static void first_asks(const std::string& what, const std::string& url) {
    const trust::SecretKey made = trust::SecretKey::generate();
    const auto signer = std::make_shared<const trust::SigningKey>(made.public_key().id, made.bytes());
    Delays delays, ends;
    const int count = kernels(2);
    for (int n = 1; n <= count; ++n) {
      fleet::TierOptions options;
      options.url = fleet::Url::parse(url);
      options.fleet = true, options.signer = signer, options.who = "test";
      auto tier = std::make_unique<fleet::Tier>(std::move(options), std::make_shared<fleet::Counts>());
      Key key;
      key.toolchain.bytes[0] = static_cast<std::uint8_t>(n);
      auto start = base::Clock::now();
      EXPECT_FALSE(tier->ask({.key = key, .key_text = "text", .acceptable = {}, .on_wait = {}}).entry)
          << what;
      delays.ms.push_back(ms_since(start));
      start = base::Clock::now();
      tier.reset();
      ends.ms.push_back(ms_since(start));
    }
    char end[64];
    std::snprintf(end, sizeof end, "their end: p50 %.1f ms, p99 %.1f ms", ends.at(0.5), ends.p99());
    print(what, "engines that start,", delays, end);
    EXPECT_LT(delays.at(1), 30'000) << what << ": and not the budget of 60 s";
    EXPECT_LT(ends.at(1), 40'000) << what << ": 2 s to give a lease back, at most";
  }
  template <class Disturb, class Body>
  static void meanwhile(Disturb&& disturb, Body&& body) {
    std::atomic<bool> ended = false;
    std::thread thread([&] {
      for (; !ended; std::this_thread::sleep_for(50ms)) disturb();
    });
    body();
    ended = true;
    thread.join();
  }
  /// Expects that every kernel misses the tier, for one reason each, and is compiled.
  kiln_stats every_kernel_is_served(const std::string& what, const std::string& url) {
    const kiln_stats s = compile_all(what, url);
    EXPECT_EQ(missed(s) + s.remote_miss_absent + s.remote_rejected_schema + s.remote_rejected_key +
                  s.remote_rejected_signature + s.remote_rejected_damaged,
              static_cast<std::uint64_t>(kernels(24)))
        << what << ": each miss has one reason";
    first_asks(what, url);
    return s;
  }
};

TEST_F(BrokenServers, NoneIsConfigured) { compile_all("no tier", ""); }
TEST_F(BrokenServers, AWellOneThatHasNothing) {
  if (!RedisServer::installed()) GTEST_SKIP() << "no redis-server on this machine";
  RedisServer server;
  every_kernel_is_served("a well server", server.url());
}
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

TEST_F(BrokenServers, FullOne) {
  if (!RedisServer::installed()) GTEST_SKIP() << "no redis-server on this machine";
  RedisServer server({"--maxmemory", "1", "--maxmemory-policy", "noeviction"});
  every_kernel_is_served("out of memory", server.unix_url());
}
TEST_F(BrokenServers, OneThatIsFlushed) {
  if (!RedisServer::installed()) GTEST_SKIP() << "no redis-server on this machine";
  RedisServer server;
  fleet::Client admin({.url = fleet::Url::parse(server.unix_url())});
  meanwhile([&] { admin.call({.words = {"FLUSHALL"}, .tag = {}}, base::Deadline::never()); },
            [&] { every_kernel_is_served("flushed again and again", server.unix_url()); });
}
TEST_F(BrokenServers, OneThatIsKilledAndStarted) {
  if (!RedisServer::installed()) GTEST_SKIP() << "no redis-server on this machine";
  RedisServer server;
  const auto restart = [&] {
    server.stop();
    std::this_thread::sleep_for(50ms);
    server.start();
  };
  meanwhile(restart, [&] { every_kernel_is_served("killed, started again", server.unix_url()); });
}

TEST_F(BrokenServers, AnswersNothingAfterTheFirstLook) {
  BadServer server([](Peer& peer) {
    for (auto words = peer.command(); !words.empty(); words = peer.command())
      if (words[0] == "GET" ? !peer.say("$-1\r\n") : true) break;
    peer.wait_for_the_end();
  });
  every_kernel_is_served("no answer to the lease", server.url());
}
/// A server 100 ms away: commands that arrive together are answered together, after one delay.
TEST_F(BrokenServers, AnswersJustInTime) {
  KILN_NIGHTLY_ONLY();
  BadServer server([](Peer& peer) {
    bool same = false;  // the command belongs to the same exchange: GET and HSET follow SET
    for (auto words = peer.command(); !words.empty(); words = peer.command()) {
      if (!same && !peer.wait(100ms)) return;
      same = words[0] == "SET";
      if (!peer.say(words[0] == "GET" ? "$-1\r\n" : words[0] == "SET" ? "+OK\r\n" : ":1\r\n")) return;
    }
  });
  every_kernel_is_served("100 ms away", server.url());
}
/// A server in a failover answers reads, and lets writes wait.
TEST_F(BrokenServers, WritesArePaused) {
  KILN_NIGHTLY_ONLY();
  if (!RedisServer::installed()) GTEST_SKIP() << "no redis-server on this machine";
  RedisServer server;
  fleet::Client admin({.url = fleet::Url::parse(server.unix_url())});
  ASSERT_TRUE(
      admin.call({.words = {"CLIENT", "PAUSE", "600000", "WRITE"}, .tag = {}}, base::Deadline::never()));
  every_kernel_is_served("writes paused", server.url());
}
TEST_F(BrokenServers, PacketsAreDropped) {
  KILN_NEEDS_NETWORK();
  const Network network;
  const Network::Host host(network, 1), servers(network, 2);
  const auto inside = host.inside();
  servers.unplug();
  every_kernel_is_served("packets dropped", "redis://" + servers.address());
}
TEST_F(BrokenServers, ALinkIsTooSlowForItsEntries) {
  if (!RedisServer::installed()) GTEST_SKIP() << "no redis-server on this machine";
  KILN_NEEDS_NETWORK();
  const Network network;
  const Network::Host host(network, 1), servers(network, 2);
  std::optional<RedisServer> server;
  std::string url = "redis://" + servers.address() + ':';
  {
    const auto inside = servers.inside();
    server.emplace(
        std::vector<std::string>{"--bind", servers.address(), "127.0.0.1", "--protected-mode", "no"});
    url += std::to_string(server->port());
    Service fills(node("b", url));
    for (int n = 1; n <= kernels(24); ++n) compile(fills, "scale", {Dtype::f32, n});
  }
  if (!host.slow_down(8)) GTEST_SKIP() << "this kernel has no tbf, or tc is missing";
  const auto inside = host.inside();
  compile_all("a link of 8 kbit/s", url);
}
TEST_F(BrokenServers, PacketsToTheNameServerAreDropped) {
  KILN_NEEDS_NETWORK();
  const Network network;
  const Network::Host host(network, 1), gateway(network, 2);
  host.run("ip route add default via " + gateway.address());
  const auto inside = host.inside();
  gateway.unplug();
  every_kernel_is_served("no name server", "redis://kernels.example");
}

}  // namespace
}  // namespace kiln::testing

// Hosts of a fleet as network namespaces. They share only a network and a server at the other end of it.
#include "cache/fleet/redis/client.hpp"
#include "fleet/client_calls.hpp"
#include "support/network_namespace.hpp"
#include "support/nightly.hpp"
#include "tools/fleet/fixture.hpp"

namespace kiln::test {
namespace {

using testing::Network;
using namespace std::chrono_literals;

class FleetNetwork : public FleetCommand {
 protected:
  void SetUp() override {
    if (!testing::RedisServer::installed()) GTEST_SKIP() << "no redis-server on this machine";
    KILN_NEEDS_NETWORK();
    FleetCommand::SetUp();
    if (IsSkipped()) return;
    network_.emplace();
    servers_.emplace(*network_, 254);
    const auto inside = servers_->inside();
    server_.emplace(
        std::vector<std::string>{"--bind", servers_->address(), "127.0.0.1", "--protected-mode", "no"});
    client_.emplace(fleet::test::options(server_->unix_url()));
  }

  /// A node on a separate host.
  struct Node {
    std::unique_ptr<Network::Host> host;
    Environment environment;
  };
  Node node(int number) const {
    return {std::make_unique<Network::Host>(*network_, number),
            FleetCommand::node("node" + std::to_string(number),
                               "redis://" + servers_->address() + ':' + std::to_string(server_->port()))};
  }
  std::unique_ptr<Running> begin(const Arguments& arguments, const Node& on) {
    const auto inside = on.host->inside();
    return start(arguments, on.environment);
  }
  Finished run(const Arguments& arguments, const Node& on) { return begin(arguments, on)->wait(); }
  nlohmann::json counts_of(const Node& node) { return counts(node.environment); }

  /// Number of names in the server that match `pattern`. The request is made on the server's own host.
  std::size_t count(const std::string& pattern) {
    const fleet::Answer answer =
        client_->call(fleet::Command{{"KEYS", pattern}, {}, 1 << 20}, base::Deadline::never());
    EXPECT_TRUE(answer) << answer.detail;
    return answer.reply.elements.size();
  }
  bool comes_true(const std::function<bool()>& condition) const {
    return base::poll_until(base::Deadline::after(60s), condition);
  }

  std::optional<Network> network_;
  std::optional<Network::Host> servers_;
  std::optional<testing::RedisServer> server_;
  std::optional<fleet::Client> client_;
};

std::uint64_t faults_in(const nlohmann::json& counts) {
  std::uint64_t out = 0;
  for (const char* reason : {"timeout", "unreachable", "refused", "protocol", "breaker_open"})
    out += counts["remote_misses"][reason].get<std::uint64_t>();
  return out;
}

TEST_F(FleetNetwork, HostsCompileEachKernelOnce) {
  KILN_NIGHTLY_ONLY();  // twelve processes at once: on a busy machine some keep a store's gate for too long
  constexpr int kHosts = 6, kProcesses = 2, kKeys = 24;
  write("plan.toml", "[[prewarm]]\ntemplate = \"scale\"\nN = { from = 14, to = " +
                         std::to_string(13 + kKeys) + ", step = 1 }\n");
  std::vector<Node> nodes;
  for (int number = 1; number <= kHosts; ++number) nodes.push_back(node(number));
  std::vector<std::unique_ptr<Running>> running;
  for (int process = 0; process < kProcesses; ++process)
    for (const Node& each : nodes) running.push_back(begin({"prewarm", path("plan.toml"), "--json"}, each));
  for (const auto& each : running) {
    const Finished done = each->wait();
    EXPECT_EQ(done.status, 0) << done.err;
    EXPECT_EQ(done.json()["total"], kKeys);
  }
  std::uint64_t compiles = 0, fetched = 0, faults = 0;
  for (const Node& each : nodes) {
    const auto c = counts_of(each);
    compiles += c["compiles"].get<std::uint64_t>();
    fetched += c["hits"]["remote"].get<std::uint64_t>();
    faults += faults_in(c);
  }
  std::printf("%d hosts of %d processes, %d cold keys: %llu compiles, %llu fetched, %llu faults\n", kHosts,
              kProcesses, kKeys, (unsigned long long)compiles, (unsigned long long)fetched,
              (unsigned long long)faults);
  EXPECT_GE(compiles, static_cast<std::uint64_t>(kKeys));
  EXPECT_LE(compiles, kKeys + faults) << "a busy machine's answer after 150 ms is none, and costs one";
  EXPECT_GE(compiles + fetched, static_cast<std::uint64_t>(kHosts * kKeys)) << "each has all of them";
  EXPECT_EQ(count("kiln:1:*:e:*"), static_cast<std::size_t>(kKeys));
}

TEST_F(FleetNetwork, AHostThatIsCutOffServesItselfAndBringsItLater) {
  const Node a = node(1), b = node(2);
  EXPECT_EQ(run(compile(3), a).json()["outcome"], "compiled");
  b.host->unplug();
  for (const int n : {3, 4}) EXPECT_EQ(run(compile(n), b).json()["outcome"], "compiled");
  const auto c = counts_of(b);
  EXPECT_EQ(c["remote_misses"]["unreachable"], 2) << c.dump(2);
  EXPECT_EQ(c["remote_puts"]["failed"], 2);
  const Finished down = run({"remote", "status", "--json"}, b);
  EXPECT_EQ(down.json()["servers"][0]["fault"], "connect") << down.out;
  EXPECT_EQ(run({"remote", "status", "--strict"}, b).status, 5);
  EXPECT_EQ(run({"remote", "push", "--all", "--strict"}, b).status, 5);
  EXPECT_EQ(count("kiln:1:*:e:*"), 1u);
  b.host->plug();
  ASSERT_TRUE(comes_true([&] { return run({"remote", "status", "--strict"}, b).status == 0; }));
  const auto pushed = run({"remote", "push", "--all", "--json"}, b).json();
  EXPECT_EQ(pushed["pushed"], 1);
  EXPECT_EQ(pushed["present"], 1) << "by a";
  EXPECT_EQ(run(compile(4), a).json()["outcome"], "remote");
}

TEST_F(FleetNetwork, ALeaderThatIsCutOffIsReplacedWithinItsLease) {
  if (!std::getenv("KILN_SOAK")) GTEST_SKIP() << "takes 15 s: KILN_SOAK=1";
  Node a = node(1), b = node(2);
  a.environment["KILN_WORKER"] = held_worker("go");
  const auto first = begin(compile(3), a);
  ASSERT_TRUE(comes_true([&] { return count("kiln:1:*:l:*") == 1; }));
  const auto second = begin(compile(3), b);
  ASSERT_TRUE(comes_true([&] {
    return run({"top", "--json"}, b).out.find("\"state\": \"fleet\"") != std::string::npos;
  }));
  a.host->unplug();
  const auto cut = base::Clock::now();
  EXPECT_EQ(second->wait().json()["outcome"], "compiled");
  std::printf("FIGURES taken over %.1f s after the leader was cut off\n",
              std::chrono::duration<double>(base::Clock::now() - cut).count());
  EXPECT_EQ(counts_of(b)["remote"]["takeovers"], 1);
  release("go");
  EXPECT_EQ(first->wait().json()["outcome"], "compiled") << "it is served all the same";
  EXPECT_EQ(counts_of(a)["remote_puts"]["failed"], 1);
  a.host->plug();
  const Node c = node(3);
  EXPECT_EQ(run(compile(3), c).json()["outcome"], "remote");
}

}  // namespace
}  // namespace kiln::test

// A Redis Cluster configured as users do it: with KILN_REMOTE, through the command.
#include "fleet/real_cluster.hpp"
#include "tools/fleet/fixture.hpp"

namespace kiln::test {
namespace {

using testing::RealCluster;
using namespace std::chrono_literals;

class FleetCluster : public FleetCommand {
 protected:
  void SetUp() override {
    if (!testing::RedisServer::installed()) GTEST_SKIP() << "no redis-server on this machine";
    FleetCommand::SetUp();
    if (IsSkipped()) return;
    cluster_.emplace();
    ASSERT_TRUE(cluster_->ready());
  }
  Environment node(const std::string& name) const { return FleetCommand::node(name, cluster_->url()); }
  Environment reader(const std::string& name) const { return FleetCommand::reader(name, cluster_->url()); }
  std::size_t count(int node, const std::string& pattern) {
    return cluster_->ask(node, {"KEYS", pattern}).elements.size();
  }
  std::size_t count(const std::string& pattern) {
    std::size_t out = 0;
    for (int i = 0; i < RealCluster::kNodes; ++i) out += count(i, pattern);
    return out;
  }
  static bool comes_true(const std::function<bool()>& condition) {
    return base::poll_until(base::Deadline::after(60s), condition);
  }

  std::optional<RealCluster> cluster_;
};

TEST_F(FleetCluster, EntriesLieOnAllNodesAndEveryCommandFindsThem) {
  constexpr int kKeys = 16;
  write("plan.toml", "[[prewarm]]\ntemplate = \"scale\"\nN = { from = 14, to = " +
                         std::to_string(13 + kKeys) + ", step = 1 }\n");
  Environment a = node("a");
  a.erase("KILN_REMOTE");
  ASSERT_EQ(kiln({"prewarm", path("plan.toml")}, a).status, 0);
  ASSERT_TRUE(comes_true([&] {
    return kiln({"remote", "push", "--all", "--strict"}, node("a")).status == 0;
  }));
  EXPECT_EQ(count("kiln:1:*:e:*"), static_cast<std::size_t>(kKeys));
  EXPECT_EQ(count("kiln:1:*:t"), static_cast<std::size_t>(kKeys));
  for (int i = 0; i < RealCluster::kNodes; ++i)
    EXPECT_GE(count(i, "kiln:1:*:e:*"), 1u) << "none of " << kKeys << " on node " << i;
  const auto again = kiln({"remote", "push", "--all", "--json"}, node("a")).json();
  EXPECT_EQ(again["present"].get<int>() + again["pushed"].get<int>(), kKeys);

  Environment b = reader("b");
  ASSERT_TRUE(comes_true([&] {
    return kiln({"remote", "pull", path("plan.toml"), "--strict"}, b).status == 0;
  }));
  Environment c = reader("c");
  ASSERT_TRUE(comes_true([&] { return kiln({"remote", "pull", "--all", "--strict"}, c).status == 0; }));
  for (Environment* each : {&b, &c}) {
    each->erase("KILN_REMOTE");
    for (const int n : {14, 20, 29}) EXPECT_EQ(kiln(compile(n), *each).json()["outcome"], "disk") << n;
  }
  nlohmann::json status;
  EXPECT_TRUE(comes_true([&] {
    status = kiln({"remote", "status", "--json"}, node("a")).json();
    return status["ok"] == true && status["servers"].size() == 3;
  })) << status.dump(2);
}

TEST_F(FleetCluster, NodesCompileEachKernelOnceAndPruneEmptiesAll) {
  constexpr int kKeys = 12;
  write("plan.toml", "[[prewarm]]\ntemplate = \"scale\"\nN = { from = 30, to = " +
                         std::to_string(29 + kKeys) + ", step = 1 }\n");
  std::vector<std::unique_ptr<Running>> running;
  for (const char* name : {"a", "b", "c"})
    running.push_back(start({"prewarm", path("plan.toml"), "--json"}, node(name)));
  for (const auto& each : running) EXPECT_EQ(each->wait().status, 0);
  std::uint64_t compiles = 0, faults = 0;
  for (const char* name : {"a", "b", "c"}) {
    const auto counted = counts(node(name));
    compiles += counted["compiles"].get<std::uint64_t>();
    for (const char* reason : {"timeout", "unreachable", "refused", "protocol", "breaker_open"})
      faults += counted["remote_misses"][reason].get<std::uint64_t>();
  }
  EXPECT_GE(compiles, static_cast<std::uint64_t>(kKeys));
  EXPECT_LE(compiles, kKeys + faults);
  EXPECT_TRUE(comes_true([&] { return count("kiln:1:*:l:*") == 0; })) << "leases are given back";
  EXPECT_EQ(count("kiln:1:*:e:*"), static_cast<std::size_t>(kKeys));
  EXPECT_TRUE(comes_true([&] {
    kiln({"remote", "prune", "--all"}, node("a"));
    return count("kiln:*") == 0;
  }));
}

}  // namespace
}  // namespace kiln::test

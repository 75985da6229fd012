// Redis Cluster: three real nodes, and scripted nodes that give wrong answers.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <set>

#include "cache/fleet/redis/cluster_slots.hpp"
#include "cache/fleet/redis/keys.hpp"
#include "cache/fleet/tier.hpp"
#include "fleet/bad_server.hpp"
#include "fleet/client_calls.hpp"
#include "fleet/real_cluster.hpp"
#include "support/time_limit.hpp"

using namespace kiln;
using namespace kiln::fleet;
using namespace kiln::fleet::test;
using namespace std::chrono_literals;
using kiln::testing::BadServer;
using kiln::testing::Peer;
using kiln::testing::RealCluster;
using kiln::testing::RedisServer;

namespace {

class RemoteCluster : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!RedisServer::installed()) GTEST_SKIP() << "redis-server is not installed";
  }
};

std::string slots_row(int first, int last, int port) {
  const auto number = [](int n) { return ':' + std::to_string(n) + "\r\n"; };
  return "*3\r\n" + number(first) + number(last) + "*2\r\n$9\r\n127.0.0.1\r\n" + number(port);
}

}  // namespace

TEST_F(RemoteCluster, SendsEachTagToItsNodeInOneExchange) {
  RealCluster cluster;
  ASSERT_TRUE(cluster.ready());
  Client client(options(cluster.url()));
  std::vector<Command> sets, gets;
  std::array<std::uint64_t, 3> of_node{};
  for (int i = 0; i < 300; ++i) {
    const std::string tag = std::to_string(i), key = "kiln:1:{" + tag + "}:e:x";
    sets.push_back(command({"SET", key, "value " + tag}, tag));
    gets.push_back(command({"GET", key}, tag));
    ++of_node.at(static_cast<std::size_t>(RealCluster::owner(tag)));
    EXPECT_EQ(client.location(tag), hash_slot_of(tag));
  }
  for (const Answer& answer : client.call(sets, soon())) ASSERT_EQ(answer.reply.text, "OK") << answer.detail;
  const auto answers = client.call(gets, soon());
  for (int i = 0; i < 300; ++i)
    ASSERT_EQ(answers[static_cast<std::size_t>(i)].reply.text, "value " + std::to_string(i));
  const Answer both = client.call(command({"MGET", "kiln:1:{7}:e:x", "kiln:1:{7}:e:y"}, "7"), soon());
  ASSERT_EQ(both.reply.elements.size(), 2u) << both.detail;
  EXPECT_EQ(both.reply.elements[0].text, "value 7");
  const Answer own =
      client.call(command({"XADD", "kiln:1:missing", "*", "row", "x"}, "kiln:1:missing"), soon());
  EXPECT_EQ(own.fault, Fault::none) << own.detail;

  const auto status = client.status();
  ASSERT_EQ(status.size(), 3u);
  std::uint64_t exchanges = 0;
  for (const ServerStatus& each : status) {
    EXPECT_EQ(each.count(Fault::refused), 0u);  // no command was redirected
    exchanges += each.exchanges;
  }
  EXPECT_EQ(exchanges, 1u + 3 + 3 + 1 + 1);  // the slots, two calls of 3, MGET and XADD
  EXPECT_EQ(status[0].commands + status[1].commands + status[2].commands, 1u + 600 + 2);
}

TEST_F(RemoteCluster, TellsTheStreamsNodeWhatIsMissing) {
  RealCluster cluster;
  ASSERT_TRUE(cluster.ready());
  TierOptions told;
  told.url = Url::parse(cluster.node(2).url() + "?cluster=true");
  told.timeouts = {.connect = 5s, .read = 5s};
  const auto counts = std::make_shared<Counts>();
  Tier tier(std::move(told), counts);
  for (const char* row : {"one", "two"}) tier.report_missing(row);
  ASSERT_TRUE(tier.flush(soon()));
  EXPECT_EQ(counts->remote_reported, 2u);
  ASSERT_NE(RealCluster::owner(std::string(kMissingKey)), 2) << "not who is asked first";
  for (const ServerStatus& each : tier.backend().health())
    EXPECT_EQ(each.count(Fault::refused), 0u) << each.name;
}

TEST_F(RemoteCluster, FollowsASlotThatMoves) {
  RealCluster cluster;
  ASSERT_TRUE(cluster.ready());
  Client client(options(cluster.url()));
  std::string tag = "a";
  while (RealCluster::owner(tag) != 1) tag += 'a';
  const std::string key = '{' + tag + "}k", slot = std::to_string(hash_slot_of(tag));
  ASSERT_TRUE(client.call(command({"SET", key, "there"}, tag), soon()));

  // The slot is half moved. Node 1 answers for keys that it has; for other keys it
  // redirects once to node 2 (ASK).
  cluster.ask(2, {"CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.id(1)});
  cluster.ask(1, {"CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.id(2)});
  EXPECT_EQ(client.call(command({"GET", key}, tag), soon()).reply.text, "there");
  EXPECT_EQ(client.call(command({"SET", '{' + tag + "}new", "beyond"}, tag), soon()).reply.text, "OK");
  const auto mixed = client.call(
      {command({"GET", key}, tag), command({"GET", '{' + tag + "}new"}, tag), command({"PING"})}, soon());
  EXPECT_EQ(mixed[0].reply.text, "there");
  EXPECT_EQ(mixed[1].reply.text, "beyond");
  EXPECT_EQ(mixed[2].reply.text, "PONG");

  // The slot has moved. The first command is redirected (MOVED); the client sends the next one to node 2.
  cluster.ask(1, {"DEL", key});
  cluster.ask(2, {"CLUSTER", "SETSLOT", slot, "NODE", cluster.id(2)});
  cluster.ask(1, {"CLUSTER", "SETSLOT", slot, "NODE", cluster.id(2)});
  EXPECT_EQ(client.call(command({"GET", '{' + tag + "}new"}, tag), soon()).reply.text, "beyond");
  const auto refused = [&] {
    std::uint64_t count = 0;
    for (const ServerStatus& each : client.status()) count += each.count(Fault::refused);
    return count;
  };
  const auto before = refused();
  EXPECT_GE(before, 3u);
  EXPECT_EQ(client.call(command({"GET", '{' + tag + "}new"}, tag), soon()).reply.text, "beyond");
  EXPECT_EQ(refused(), before);
}

TEST_F(RemoteCluster, ADeadNodeCostsItsOwnSlotsOnly) {
  RealCluster cluster;
  ASSERT_TRUE(cluster.ready());
  Client client(options(cluster.url()));
  std::vector<Command> gets;
  for (int i = 0; i < 60; ++i)
    gets.push_back(command({"GET", '{' + std::to_string(i) + '}'}, std::to_string(i)));
  for (const Answer& answer : client.call(gets, soon())) ASSERT_TRUE(answer) << answer.detail;
  cluster.node(2).stop();
  const auto answers = client.call(gets, soon());
  for (int i = 0; i < 60; ++i) {
    const Answer& answer = answers[static_cast<std::size_t>(i)];
    if (RealCluster::owner(std::to_string(i)) == 2) {
      EXPECT_TRUE(answer.fault == Fault::connect || answer.fault == Fault::closed) << name_of(answer.fault);
    } else {
      EXPECT_TRUE(answer) << answer.detail;
    }
  }
}

TEST_F(RemoteCluster, LearnsTheSlotsFromAnySeed) {
  RealCluster cluster;
  ASSERT_TRUE(cluster.ready());
  const std::string dead = std::to_string(kiln::testing::free_port());
  Client client(options("redis://127.0.0.1:" + dead + ",127.0.0.1:" + std::to_string(cluster.node(2).port()) +
                        "?cluster=true"));
  EXPECT_EQ(client.call(command({"SET", "k", "v"}, "k"), soon()).reply.text, "OK");
  EXPECT_EQ(client.status().size(), 4u);
}

TEST(RemoteClusterScripted, GivesUpOnRedirectionsThatGoRound) {
  std::atomic<int> asked{0}, port{0};
  BadServer server([&](Peer& peer) {
    for (auto words = peer.command(); !words.empty(); words = peer.command()) {
      if (words[0] == "CLUSTER") {
        peer.say("*1\r\n" + slots_row(0, 16383, port));
      } else {
        ++asked;
        peer.say("-MOVED 0 127.0.0.1:" + std::to_string(port) + "\r\n");
      }
    }
  });
  port = server.port();
  Client client(options(server.url() + "?cluster=true"));
  const Answer answer = client.call(command({"GET", "k"}, "k"), soon());
  EXPECT_EQ(answer.fault, Fault::refused);
  EXPECT_TRUE(answer.detail.starts_with("MOVED")) << answer.detail;
  EXPECT_EQ(asked, 4);  // the first time and three more
}

TEST(RemoteClusterScripted, FollowsWithinTheCallersDeadline) {
  std::atomic<int> port{0};
  BadServer server([&](Peer& peer) {
    for (auto words = peer.command(); !words.empty(); words = peer.command()) {
      if (words[0] == "CLUSTER") {
        peer.say("*1\r\n" + slots_row(0, 16383, port));
      } else {
        if (!peer.wait(150ms)) return;
        peer.say("-MOVED 0 127.0.0.1:" + std::to_string(port) + "\r\n");
      }
    }
  });
  port = server.port();
  Client client(options(server.url() + "?cluster=true"));
  ASSERT_EQ(client.call(command({"GET", "k"}, "k"), soon()).fault, Fault::refused);
  const auto began = base::Clock::now();
  EXPECT_EQ(client.call(command({"GET", "k"}, "k"), base::Deadline::after(200ms)).fault, Fault::timeout);
  const auto took = base::Clock::now() - began;
  EXPECT_GE(took, 199ms);
  EXPECT_LT(took, at_most(2500ms));
}

TEST(RemoteClusterScripted, RefusesSlotsThatMakeNoSense) {
  for (const std::string said : {"*0\r\n", "$3\r\nabc\r\n", "*1\r\n*2\r\n:0\r\n:5\r\n",
                                 "-ERR This instance has cluster support disabled\r\n",
                                 "*1\r\n*3\r\n:0\r\n:99999\r\n*2\r\n$1\r\nh\r\n:1\r\n"}) {
    BadServer server([&](Peer& peer) {
      while (!peer.command().empty()) peer.say(said);
    });
    Client client(options(server.url() + "?cluster=true"));
    const auto answers = client.call({command({"GET", "k"}, "k"), command({"GET", "l"}, "l")}, soon());
    for (const Answer& answer : answers) EXPECT_EQ(answer.fault, Fault::refused) << said << answer.detail;
  }
}

TEST(RemoteClusterScripted, LosesNoTimeOverSeedsThatAreDead) {
  BadServer silent([](Peer&peer) { peer.wait_for_the_end(); }),
      silent_too([](Peer&peer) { peer.wait_for_the_end(); });
  ClientOptions with{
      .url = Url::parse(silent.url() + ",127.0.0.1:" + std::to_string(silent_too.port()) + "?cluster=true")};
  Client client(std::move(with));
  for (int i = 0; i < 4; ++i) {
    const auto began = base::Clock::now();
    const Answer answer = client.call(command({"GET", "k"}, "k"), base::Deadline::never());
    EXPECT_TRUE(answer.fault == Fault::timeout || answer.fault == Fault::breaker_open)
        << name_of(answer.fault);
    EXPECT_LT(base::Clock::now() - began, at_most(2500ms));
  }
  EXPECT_EQ(client.call(command({"GET", "k"}, "k"), base::Deadline::never()).fault, Fault::breaker_open);
}

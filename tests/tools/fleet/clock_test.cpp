// Nodes and servers whose wall clocks are wrong, or are set during a compile. Leases use the server's clock
// and monotonic clocks. Entries use no clock.
#include <csignal>
#include <ctime>

#include "cache/fleet/redis/client.hpp"
#include "fleet/client_calls.hpp"
#include "support/nightly.hpp"
#include "support/places.hpp"
#include "support/shifted_clock.hpp"
#include "tools/fleet/fixture.hpp"

namespace kiln::test {
namespace {

using namespace std::chrono_literals;
using testing::shift_clocks_of;

constexpr std::int64_t kHour = 3600, kYear = 365 * 24 * kHour;

class FleetClocks : public FleetCommand {
 protected:
  void SetUp() override {
    if (!testing::RedisServer::installed()) GTEST_SKIP() << "no redis-server on this machine";
    FleetCommand::SetUp();
    if (IsSkipped()) return;
    for (const char* name : {"a", "b", "c", "d", "server"}) set_clock(name, 0);
    ::setenv("LD_PRELOAD", places::kShiftedClock, 1);
    ::setenv("SHIFTED_CLOCK", path("server.clock").c_str(), 1);
    server_.emplace();
    ::unsetenv("LD_PRELOAD"), ::unsetenv("SHIFTED_CLOCK");
    client_.emplace(fleet::test::options(server_->unix_url()));
  }
  void set_clock(const std::string& of, std::int64_t seconds) const {
    shift_clocks_of(path(of + ".clock"), seconds);
  }
  Environment with_clock(Environment node, const std::string& name) const {
    node["LD_PRELOAD"] = places::kShiftedClock, node["SHIFTED_CLOCK"] = path(name + ".clock");
    return node;
  }
  Environment node(const std::string& name) const {
    return with_clock(FleetCommand::node(name, server_->patient_url()), name);
  }
  Environment reader(const std::string& name) const {
    return with_clock(FleetCommand::reader(name, server_->patient_url()), name);
  }

  fleet::Reply ask(std::vector<std::string> words) {
    fleet::Answer answer =
        client_->call(fleet::Command{std::move(words), {}, 1 << 20}, base::Deadline::never());
    EXPECT_TRUE(answer) << answer.detail;
    return std::move(answer.reply);
  }
  /// The name of the only lease; empty when there is none.
  std::string lease() {
    const auto names = ask({"KEYS", "kiln:1:*:l:*"}).elements;
    return names.empty() ? "" : names.front().text;
  }
  std::int64_t lease_left() { return ask({"PTTL", lease()}).integer; }
  static bool comes_true(const std::function<bool()>& condition) {
    return base::poll_until(base::Deadline::after(60s), condition);
  }
  bool waits(const Environment& node) {
    return kiln({"top", "--json"}, node).out.find("\"state\": \"fleet\"") != std::string::npos;
  }

  std::optional<testing::RedisServer> server_;
  std::optional<fleet::Client> client_;
};

TEST_F(FleetClocks, AreTheOnesThatTheTestSets) {
  set_clock("server", kYear);
  const std::int64_t theirs = std::stoll(ask({"TIME"}).elements.at(0).text);
  EXPECT_NEAR(static_cast<double>(theirs), static_cast<double>(std::time(nullptr) + kYear), 60);
}

TEST_F(FleetClocks, ALeadersJumpsNeitherProlongItsLeaseNorLetTwoCompile) {
  KILN_NIGHTLY_ONLY();
  Environment a = node("a"), b = node("b");
  a["KILN_WORKER"] = b["KILN_WORKER"] = held_worker("go");
  const auto first = start(compile(3), a);
  ASSERT_TRUE(comes_true([&] { return !lease().empty(); }));
  const std::string name = lease(), token = ask({"GET", name}).text;
  const auto second = start(compile(3), b);
  ASSERT_TRUE(comes_true([&] { return waits(b); }));
  for (const std::int64_t jump : {kHour, -kHour}) {
    set_clock("a", jump), set_clock("b", -jump);
    const auto left = [&] {
      const std::int64_t ms = lease_left();
      EXPECT_LE(ms, 10'000);
      return ms;
    };
    ASSERT_TRUE(comes_true([&] { return left() < 8500; })) << "it runs out as ever";
    ASSERT_TRUE(comes_true([&] { return left() > 9000; })) << "it is renewed as ever";
    EXPECT_EQ(ask({"GET", name}).text, token);
  }
  release("go");
  EXPECT_EQ(first->wait().json()["outcome"], "compiled");
  EXPECT_EQ(second->wait().json()["outcome"], "remote");
  EXPECT_EQ(counts(b)["compiles"], 0);
  EXPECT_EQ(counts(b)["remote"]["takeovers"], 0);
  EXPECT_EQ(counts(a)["remote"]["leases_lost"], 0);
}

TEST_F(FleetClocks, AServersJumpForwardEndsALeaseAndBothAreServed) {
  Environment a = node("a"), b = node("b");
  a["KILN_WORKER"] = b["KILN_WORKER"] = held_worker("go");
  const auto first = start(compile(3), a);
  ASSERT_TRUE(comes_true([&] { return !lease().empty(); }));
  const auto second = start(compile(3), b);
  ASSERT_TRUE(comes_true([&] { return waits(b); }));
  set_clock("server", kHour);
  EXPECT_TRUE(comes_true([&] { return lease().empty() || lease_left() <= 10'000; }));
  EXPECT_TRUE(comes_true([&] { return !lease().empty(); })) << "one of the two has it again";
  release("go");
  for (const auto& each : {&first, &second}) EXPECT_EQ((*each)->wait().status, 0);
  EXPECT_LE(counts(a)["compiles"].get<int>() + counts(b)["compiles"].get<int>(), 2);
  EXPECT_EQ(kiln(compile(3), node("c")).json()["outcome"], "remote");
}

TEST_F(FleetClocks, AServersJumpBackMakesADeadNodesLeaseLastUntilTheBudget) {
  Environment a = node("a"), b = node("b");
  a["KILN_WORKER"] = held_worker("never"), b["KILN_REMOTE_BUDGET"] = "2";
  const auto first = start(compile(3), a);
  ASSERT_TRUE(comes_true([&] { return !lease().empty(); }));
  first->send(SIGKILL);
  set_clock("server", -kHour);
  EXPECT_TRUE(comes_true([&] { return lease_left() > 3'500'000; }));
  EXPECT_EQ(kiln(compile(3), b).json()["outcome"], "compiled");
  EXPECT_EQ(counts(b)["remote"]["wait_timeouts"], 1);
  EXPECT_EQ(kiln(compile(3), node("c")).json()["outcome"], "remote");
}

TEST_F(FleetClocks, WhatNodesWithWrongClocksMadeIsServed) {
  set_clock("a", -40 * kYear), set_clock("b", 40 * kYear);  // more than 31 bits of seconds
  EXPECT_EQ(kiln(compile(3), node("a")).json()["outcome"], "compiled");
  EXPECT_EQ(kiln(compile(4), node("b")).json()["outcome"], "compiled");
  EXPECT_EQ(kiln(compile(5), node("c")).json()["outcome"], "compiled");
  const auto made = [&](const char* by) {
    return kiln({"ls", "--json"}, node(by)).json()["entries"][0]["created"].get<std::int64_t>();
  };
  EXPECT_LT(made("a"), std::time(nullptr) - 39 * kYear);
  EXPECT_GT(made("b"), std::int64_t{1} << 31);
  for (const int n : {3, 4}) EXPECT_EQ(kiln(compile(n), reader("c")).json()["outcome"], "remote") << n;
  EXPECT_EQ(kiln(compile(5), reader("a")).json()["outcome"], "remote");
  EXPECT_EQ(kiln(compile(5), reader("b")).json()["outcome"], "remote");
  // The rows name their toolchains, so a node without a compiler finds the entries, too.
  Environment slim = reader("d");
  for (const char* name : {"CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV"}) slim[name] = "";
  slim["KILN_CUDA_HOME"] = path("nothing");
  if (kiln(compile(6), slim).status == 0) GTEST_SKIP() << "a compiler is found wherever one looks";
  for (const int n : {3, 4, 5}) EXPECT_EQ(kiln(compile(n), slim).json()["outcome"], "remote") << n;
}

}  // namespace
}  // namespace kiln::test

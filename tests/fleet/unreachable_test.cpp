// Servers that cannot be reached, or that the breaker has given up, cost callers at most their deadlines.
#include <gtest/gtest.h>

#include <map>

#include "fleet/fault_fixture.hpp"
#include "support/time_limit.hpp"

using namespace kiln;
using namespace kiln::fleet;
using namespace kiln::fleet::test;
using namespace std::chrono_literals;

namespace {

/// A listener whose queue of connections is full, so that the kernel drops new connections without an answer.
class BlackHole {
 public:
  BlackHole() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address_), size);
    ::listen(listener_.get(), 0);
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address_), &size);
    for (int i = 0; i < 4; ++i) {
      fillers_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      ::connect(fillers_.back().get(), reinterpret_cast<sockaddr*>(&address_), size);
    }
    std::this_thread::sleep_for(50ms);
  }
  std::string host() const { return "127.0.0.1:" + std::to_string(ntohs(address_.sin_port)); }
  Address address() const { return *Address::numeric("127.0.0.1", ntohs(address_.sin_port)); }

 private:
  base::Fd listener_;
  sockaddr_in address_{};
  std::vector<base::Fd> fillers_;
};

}  // namespace

TEST(RemoteFault, GivesUpOnABlackHole) {
  const BlackHole hole;
  Client client({.url = Url::parse("redis://" + hole.host())});
  const Timed call = timed(client, get("k"));
  EXPECT_EQ(call.answer.fault, Fault::connect) << call.answer.detail;
  EXPECT_GE(call.took, 95ms);
  EXPECT_LT(call.took, at_most(kBounded));
}

TEST(RemoteFault, TriesANamesOtherAddressesWithinTheSameTime) {
  const BlackHole hole;
  BadServer server(serve);
  ClientOptions options{.url = Url::parse("redis://name:1")};
  options.timeouts.connect = 1s;
  options.lookup = [&](const std::string&, std::uint16_t) {
    return std::vector<Address>{hole.address(), *Address::numeric("127.0.0.1", 1),
                                *Address::numeric("127.0.0.1", static_cast<std::uint16_t>(server.port()))};
  };
  Client client(std::move(options));
  const Timed call = timed(client, get("k"));
  EXPECT_EQ(call.answer.reply.text, "value of k") << call.answer.detail;
  EXPECT_LT(call.took, at_most(kBounded));
}

TEST(RemoteFault, ADeadDnsServerIsNotWaitedFor) {
  const auto end = std::make_shared<std::atomic<bool>>(false);  // the lookup's thread owns it, too
  ClientOptions options{.url = Url::parse("redis://name")};
  options.lookup = [end](const std::string&, std::uint16_t) {
    while (!*end) std::this_thread::sleep_for(1ms);
    return std::vector<Address>();
  };
  {
    Client client(std::move(options));
    const auto began = base::Clock::now();
    for (int i = 0; i < 20; ++i) EXPECT_EQ(client.call(get("k"), never()).fault, Fault::unresolved);
    EXPECT_LT(base::Clock::now() - began, at_most(kBounded));
    const auto status = client.status().at(0);
    EXPECT_EQ(status.count(Fault::unresolved), 20u);
    EXPECT_EQ(status.breaker, Breaker::State::closed);
  }  // the client is destroyed while the lookup hangs
  *end = true;
}

TEST(RemoteFault, HeedsTheCallersDeadline) {
  BadServer server([](Peer& peer) { peer.wait_for_the_end(); });
  ClientOptions options{.url = Url::parse(server.url())};
  options.timeouts.read = 60s;
  Client client(std::move(options));
  for (int i = 0; i < 5; ++i) {
    const Timed call = timed(client, get("k"), base::Deadline::after(30ms));
    EXPECT_EQ(call.answer.fault, Fault::timeout);
    EXPECT_GE(call.took, 29ms);
    EXPECT_LT(call.took, at_most(kBounded));
  }
  // A caller's short deadline is no failure of the server, which had 30 ms of its 60 s.
  EXPECT_EQ(client.status().at(0).breaker, Breaker::State::closed);
  const int before = server.connections();
  EXPECT_EQ(client.call(get("k"), base::Deadline::after(0s)).fault, Fault::timeout);
  EXPECT_EQ(server.connections(), before);
}

TEST(RemoteFault, KeepsItsDeadlinesToMilliseconds) {
  BadServer server([](Peer& peer) { peer.wait_for_the_end(); });
  ClientOptions options{.url = Url::parse(server.url())};
  options.breaker.failures = 1000;
  Client client(std::move(options));
  auto best = base::Clock::duration::max();
  for (int i = 0; i < 10; ++i) best = std::min(best, timed(client, get("k")).took);
  EXPECT_GE(best, 150ms);
  EXPECT_LT(best, at_most(170ms));  // the best of ten calls, to leave out pauses of the machine
}

TEST(RemoteFault, GivesAnAnnouncedValueItsTime) {
  // The deadline grows with the announced size. 20 MB at 20 MB/s would give 1,150 ms,
  // 200 more than for no bytes.
  const std::string part(1 << 20, 'x');
  BadServer server([&](Peer& peer) {
    peer.command();
    peer.say('$' + std::to_string(20 << 20) + "\r\n");
    if (!peer.wait(200ms)) return;
    for (int i = 0; i < 20; ++i)
      if (!peer.say(part)) return;
    peer.say("\r\n");
  });
  ClientOptions options{.url = Url::parse(server.url())};
  options.timeouts.bytes_per_second = 10'000'000;  // for a busy machine: the deadline is 2.2 s
  Client client(std::move(options));
  Command command = get("k");
  command.reply_limit = 32 << 20;
  const Answer answer = client.call(command, never());
  EXPECT_EQ(answer.fault, Fault::none) << answer.detail;
  EXPECT_EQ(answer.reply.text.size(), std::size_t{20} << 20);
}

TEST(RemoteFault, LeavesAServerAloneAfterThreeFailures) {
  std::atomic<bool> well{false};
  BadServer server([&](Peer& peer) { well ? serve(peer) : void(peer.command()); });
  std::atomic<std::int64_t> seconds{0};
  ClientOptions options{.url = Url::parse(server.url())};
  options.now = [&] {
    return base::Clock::time_point() + std::chrono::hours(1) + std::chrono::seconds(seconds);
  };
  Client client(std::move(options));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.call(get("k"), never()).fault, Fault::closed);
  const int asked = server.connections();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(client.call(get("k"), never()).fault, Fault::breaker_open);
  EXPECT_EQ(server.connections(), asked);
  auto status = client.status().at(0);
  EXPECT_EQ(status.breaker, Breaker::State::open);
  EXPECT_EQ(status.count(Fault::breaker_open), 100u);
  EXPECT_EQ(status.times_opened, 1u);
  EXPECT_GT(status.opens_in, 23s);
  EXPECT_LE(status.opens_in, 36s);
  EXPECT_EQ(status.open_connections, 0);

  seconds = 37;  // one call probes the server, which still fails
  EXPECT_EQ(client.call(get("k"), never()).fault, Fault::closed);
  EXPECT_EQ(client.call(get("k"), never()).fault, Fault::breaker_open);
  EXPECT_EQ(server.connections(), asked + 1);
  well = true;
  seconds = 74;
  EXPECT_EQ(client.call(get("k"), never()).reply.text, "value of k");
  EXPECT_EQ(client.status().at(0).breaker, Breaker::State::closed);
}

TEST(RemoteFault, RepliesThatAreTooLargeOpenNoBreaker) {
  BadServer server([](Peer& peer) {
    for (auto words = peer.command(); !words.empty(); words = peer.command())
      peer.say_bulk(words.back() == "big" ? std::string(100000, 'x') : "small");
  });
  Client client({.url = Url::parse(server.url())});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(client.call(get("big"), never()).fault, Fault::too_large);
  EXPECT_EQ(client.call(get("other"), never()).reply.text, "small");
}

TEST(RemoteFault, AnAnswerThatIsTooLargeForgivesNoFailures) {
  BadServer server([](Peer& peer) {
    const auto words = peer.command();
    if (!words.empty()) peer.say(words[0] == "GET" ? "$5000\r\nhalf of it" : "$99999999999\r\n");
  });
  Client client({.url = Url::parse(server.url()), .timeouts = {.connect = 5s, .read = 5s}});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(client.call(get("one"), never()).fault, Fault::closed);
    if (i == 2) break;
    EXPECT_EQ(client.call({.words = {"SET", "one", "value"}, .tag = {}}, never()).fault, Fault::too_large);
  }
  EXPECT_EQ(client.status().at(0).breaker, Breaker::State::open);
  EXPECT_EQ(client.call(get("one"), never()).fault, Fault::breaker_open);
}

TEST(RemoteFault, OneDeadServerOfSeveralCostsItsOwnKeysOnly) {
  const BlackHole hole;
  BadServer a(serve), b(serve);
  Client client({.url = Url::parse(a.url() + ',' + hole.host() + ",127.0.0.1:" + std::to_string(b.port()))});
  std::vector<Command> commands;
  for (int i = 0; i < 60; ++i)
    commands.push_back({.words = {"GET", std::to_string(i)}, .tag = std::to_string(i)});
  std::map<std::uint32_t, int> lost, served;
  const auto began = base::Clock::now();
  const auto answers = client.call(commands, never());
  EXPECT_LT(base::Clock::now() - began, at_most(kBounded));
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const std::uint32_t place = client.location(commands[i].tag);
    ++(answers[i] ? served : lost)[place];
    if (answers[i]) {
      EXPECT_EQ(answers[i].reply.text, "value of " + std::to_string(i));
    } else {
      EXPECT_EQ(answers[i].fault, Fault::connect) << answers[i].detail;
    }
  }
  EXPECT_EQ(served.size(), 2u);
  EXPECT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost.count(1), 1u);
  const auto status = client.status();
  EXPECT_EQ(status.at(0).exchanges, 1u);  // one round trip for all commands
  EXPECT_EQ(status.at(2).exchanges, 1u);
  EXPECT_EQ(a.connections(), 1);
}

TEST(RemoteFault, ManyThreadsPayForADeadServerOnce) {
  BadServer server([](Peer& peer) { peer.wait_for_the_end(); });
  Client client({.url = Url::parse(server.url())});
  const auto began = base::Clock::now();
  std::vector<std::thread> threads;
  std::atomic<int> faults{0};
  for (int i = 0; i < 32; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 10; ++k) faults += client.call(get("k"), never()).fault != Fault::none;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(base::Clock::now() - began, at_most(kBounded));
  EXPECT_EQ(faults, 320);
  EXPECT_LE(server.connections(), 8);  // four calls at once; the breaker opens after the third failure
  EXPECT_EQ(client.status().at(0).breaker, Breaker::State::open);
}

TEST(RemoteFault, APasswordIsInNoAnswer) {
  for (const char* reply : {"-ERR unknown command 'AUTH', with args beginning with: 'hunter2'\r\n",
                            "-hunter2\r\n", "$7\r\nhunter2\r\n"}) {
    BadServer server([&](Peer& peer) {
      peer.command();
      peer.say(reply);
      peer.wait_for_the_end();
    });
    Client client({.url = Url::parse("redis://:hunter2@127.0.0.1:" + std::to_string(server.port()))});
    const Answer answer = client.call(get("k"), never());
    EXPECT_EQ(answer.fault, Fault::auth);
    EXPECT_EQ(answer.detail.find("hunter2"), std::string::npos) << answer.detail;
    EXPECT_EQ(client.status().at(0).last_error.find("hunter2"), std::string::npos);
  }
}

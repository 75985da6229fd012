// The client against a real server.
#include "cache/fleet/redis/client.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <array>
#include <atomic>
#include <future>
#include <random>
#include <thread>

#include "fleet/client_calls.hpp"
#include "fleet/redis_server.hpp"
#include "support/child.hpp"
#include "support/time_limit.hpp"

using namespace kiln;
using namespace kiln::fleet;
using namespace kiln::fleet::test;
using namespace std::chrono_literals;
using kiln::testing::RedisServer;

namespace {

class ClientOfRedis : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!RedisServer::installed()) GTEST_SKIP() << "redis-server is not installed";
  }
};

int open_sockets() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    struct stat info {};
    count += ::fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode);
  }
  return count;
}

}  // namespace

TEST_F(ClientOfRedis, SetsAndGetsOverTcp) {
  RedisServer server;
  Client client(options(server.url()));
  const auto answers = client.call({command({"SET", "k", std::string("a\0b\r\n", 5)}), command({"GET", "k"}),
                                    command({"GET", "none"}), command({"INCR", "n"})},
                                   soon());
  ASSERT_EQ(answers.size(), 4u);
  for (const Answer& answer : answers)
    ASSERT_EQ(answer.fault, Fault::none) << name_of(answer.fault) << ' ' << answer.detail;
  EXPECT_EQ(answers[0].reply.text, "OK");
  EXPECT_EQ(answers[1].reply.text, std::string("a\0b\r\n", 5));
  EXPECT_EQ(answers[2].reply.kind, Reply::Kind::nil);
  EXPECT_EQ(answers[3].reply.integer, 1);
}

TEST_F(ClientOfRedis, SpeaksOverAUnixSocketAndIpv6) {
  RedisServer server({"--bind", "127.0.0.1", "-::1"});
  Client unix_client(options(server.unix_url()));
  EXPECT_EQ(unix_client.call(command({"SET", "k", "v"}), soon()).reply.text, "OK");
  EXPECT_EQ(unix_client.status().at(0).name, server.socket());
  Client named(options("redis://localhost:" + std::to_string(server.port())));
  EXPECT_EQ(named.call(command({"GET", "k"}), soon()).reply.text, "v");
  Client six(options("redis://[::1]:" + std::to_string(server.port())));
  const Answer answer = six.call(command({"GET", "k"}), soon());
  if (answer.fault == Fault::connect)
    GTEST_SKIP() << "IPv6 was not tested, there is no ::1 here: " << answer.detail;
  EXPECT_EQ(answer.reply.text, "v");
}

TEST_F(ClientOfRedis, UsesItsDatabase) {
  RedisServer server;
  Client three(options(server.url() + "/3")), zero(options(server.url())),
      by_option(options(server.unix_url() + "?db=3"));
  EXPECT_TRUE(three.call(command({"SET", "k", "3"}), soon()));
  EXPECT_EQ(zero.call(command({"GET", "k"}), soon()).reply.kind, Reply::Kind::nil);
  EXPECT_EQ(by_option.call(command({"GET", "k"}), soon()).reply.text, "3");
  Client none(options(server.url() + "/4000"));  // Redis has 16 databases
  const Answer answer = none.call(command({"GET", "k"}), soon());
  EXPECT_EQ(answer.fault, Fault::auth);
  EXPECT_NE(answer.detail.find("database"), std::string::npos) << answer.detail;
}

TEST_F(ClientOfRedis, LogsInAndSaysWhatIsRefused) {
  RedisServer server({"--requirepass", "right", "--user", "reader", "on", ">r/1", "~kiln:*", "+get"});
  const std::string at = "127.0.0.1:" + std::to_string(server.port());
  Client right(options("redis://:right@" + at)), wrong(options("redis://:hunter2@" + at)),
      nobody(options("redis://" + at)), reader(options("redis://reader:r%2F1@" + at));
  EXPECT_EQ(right.call(command({"SET", "kiln:k", "v"}), soon()).reply.text, "OK");
  EXPECT_EQ(reader.call(command({"GET", "kiln:k"}), soon()).reply.text, "v");
  const Answer write = reader.call(command({"SET", "kiln:k", "w"}), soon());
  EXPECT_EQ(write.fault, Fault::refused);
  EXPECT_TRUE(write.detail.starts_with("NOPERM")) << write.detail;
  EXPECT_EQ(reader.call(command({"GET", "other"}), soon()).fault, Fault::refused);
  EXPECT_EQ(reader.status().at(0).breaker, Breaker::State::closed);

  for (Client* client : {&wrong, &nobody}) {
    const Answer answer = client->call(command({"GET", "kiln:k"}), soon());
    EXPECT_EQ(answer.fault, Fault::auth) << answer.detail;
    EXPECT_EQ(answer.detail.find("hunter2"), std::string::npos);
    client->call(command({"GET", "kiln:k"}), soon()), client->call(command({"GET", "kiln:k"}), soon());
    EXPECT_EQ(client->call(command({"GET", "kiln:k"}), soon()).fault, Fault::breaker_open);
  }
}

TEST_F(ClientOfRedis, NoticesThatThePasswordWasRotated) {
  RedisServer server({"--requirepass", "old"});
  const std::string at = "127.0.0.1:" + std::to_string(server.port());
  ClientOptions anew = options("redis://:old@" + at);
  anew.idle = 0s;
  Client old(anew);
  EXPECT_TRUE(old.call(command({"CONFIG", "SET", "requirepass", "new"}), soon()));
  EXPECT_EQ(old.call(command({"GET", "k"}), soon()).fault, Fault::auth);
  Client fresh(options("redis://:new@" + at));
  EXPECT_TRUE(fresh.call(command({"CONFIG", "SET", "requirepass", "old"}), soon()));
  EXPECT_TRUE(old.call(command({"GET", "k"}), soon()));  // rotated back, before three failures
}

TEST_F(ClientOfRedis, TheUrlsTimeoutReplacesTheClientsOwn) {
  RedisServer server;
  ClientOptions with = options(server.unix_url() + "?timeout=50");
  with.breaker.failures = 1000000;  // a busy machine may take longer
  Client client(std::move(with));
  EXPECT_TRUE(base::poll_until(soon(), [&] { return bool(client.call(command({"PING"}), soon())); }));
  server.pause();
  const Answer answer = client.call(command({"PING"}), soon());
  server.resume();
  EXPECT_EQ(answer.fault, Fault::timeout);
  EXPECT_NE(answer.detail.find("50 ms"), std::string::npos) << answer.detail;
}

TEST_F(ClientOfRedis, IsThereAgainAfterARestart) {
  RedisServer server;
  Client client(options(server.url()));
  EXPECT_TRUE(client.call(command({"SET", "k", "v"}), soon()));
  server.stop();
  const Answer dead = client.call(command({"GET", "k"}), soon());
  EXPECT_TRUE(dead.fault == Fault::connect || dead.fault == Fault::closed) << name_of(dead.fault);
  server.start();
  const Answer again = client.call(command({"GET", "k"}), soon());
  EXPECT_EQ(again.fault, Fault::none) << again.detail;
  EXPECT_EQ(again.reply.kind, Reply::Kind::nil);  // the server keeps nothing on disk
  EXPECT_TRUE(client.call(command({"FLUSHALL"}), soon()));
  EXPECT_TRUE(client.call(command({"GET", "k"}), soon()));
}

TEST_F(ClientOfRedis, AStoppedServerCostsItsTimeAndNoWrongValues) {
  RedisServer server;
  ClientOptions with = options(server.url());
  with.timeouts = {};
  with.breaker.failures = 1000;
  Client client(std::move(with));
  std::vector<Command> keys;
  for (int i = 0; i < 20; ++i)
    keys.push_back(command({"SET", "key" + std::to_string(i), "value of key" + std::to_string(i)}));
  for (const Answer& answer : client.call(keys, soon())) EXPECT_TRUE(answer) << answer.detail;
  for (int i = 0; i + 1 < 20; i += 2) {
    server.pause();
    const auto began = base::Clock::now();
    EXPECT_EQ(client.call(command({"GET", "key" + std::to_string(i)}), soon()).fault, Fault::timeout);
    const auto took = base::Clock::now() - began;
    EXPECT_GE(took, 149ms);
    EXPECT_LT(took, at_most(2500ms));
    server.resume();
    for (int k = 1; k < 20; k += 6) {
      const std::string key = "key" + std::to_string((i + k) % 20);
      Answer answer = client.call(command({"GET", key}), soon());
      for (int again = 0; !answer && again < 10; ++again) answer = client.call(command({"GET", key}), soon());
      ASSERT_TRUE(answer) << answer.detail;
      ASSERT_EQ(answer.reply.text, "value of " + key);
    }
  }
}

TEST_F(ClientOfRedis, SaysThatTheServerIsFullOrReadOnly) {
  RedisServer server({"--maxmemory", "2mb", "--maxmemory-policy", "noeviction"});
  Client client(options(server.url()));
  const Answer full = client.call(command({"SET", "k", std::string(4 << 20, 'x')}), soon());
  const Answer more = client.call(command({"SET", "l", "x"}), soon());
  EXPECT_EQ(more.fault, Fault::refused) << full.detail;
  EXPECT_TRUE(more.detail.starts_with("OOM")) << more.detail;
  EXPECT_TRUE(client.call(command({"CONFIG", "SET", "maxmemory", "0"}), soon()));
  EXPECT_TRUE(client.call(command({"REPLICAOF", "127.0.0.1", "1"}), soon()));
  EXPECT_TRUE(client.call(command({"SET", "l", "x"}), soon()).detail.starts_with("READONLY"));
  EXPECT_EQ(client.status().at(0).open_connections, 0);  // closed, as the name may mean another server by now
  EXPECT_EQ(client.status().at(0).breaker, Breaker::State::closed);
}

TEST_F(ClientOfRedis, FindsNoPlaceAtAServerWithAllItsClients) {
  RedisServer server({"--maxclients", "1"});
  std::optional<Client> first(options(server.url()));
  Client second(options(server.url())),
      third(options("redis://:p@127.0.0.1:" + std::to_string(server.port())));
  EXPECT_TRUE(first->call(command({"PING"}), soon()));
  const Answer answer = second.call(command({"PING"}), soon());
  EXPECT_TRUE(answer.fault == Fault::refused || answer.fault == Fault::closed) << name_of(answer.fault);
  const Answer login = third.call(command({"PING"}), soon());
  EXPECT_TRUE(login.fault == Fault::connect || login.fault == Fault::closed)
      << name_of(login.fault) << login.detail;
  first.reset();
  EXPECT_TRUE(base::poll_until(base::Deadline::after(10s),
                               [&] { return static_cast<bool>(second.call(command({"PING"}), soon())); }));
}

TEST_F(ClientOfRedis, MovesValuesOfSixteenMegabytes) {
  RedisServer server;
  Client client(options(server.url()));
  std::string value(16 << 20, '\0');
  std::mt19937 random(3);
  for (char& c : value) c = static_cast<char>(random());
  EXPECT_EQ(client.call(command({"SET", "big", value}), soon()).reply.text, "OK");
  EXPECT_EQ(client.call(command({"GET", "big"}), soon()).fault, Fault::too_large);
  Command get = command({"GET", "big"});
  get.reply_limit = 17 << 20;
  std::vector<Command> four(4, get);
  for (const Answer& answer : client.call(four, soon()))
    EXPECT_TRUE(answer.reply.text == value) << answer.detail;
  const Answer huge = client.call(command({"SET", "huge", std::string(65 << 20, 'x')}), soon());
  EXPECT_EQ(huge.fault, Fault::too_large);
  EXPECT_TRUE(client.call(command({"PING"}), soon()));
}

TEST_F(ClientOfRedis, SendsManyCommandsInOneExchange) {
  RedisServer server;
  Client client(options(server.url()));
  std::vector<Command> commands;
  for (int i = 0; i < 5000; ++i) commands.push_back(command({"ECHO", std::to_string(i)}));
  const auto answers = client.call(commands, soon());
  for (int i = 0; i < 5000; ++i)
    ASSERT_EQ(answers[static_cast<std::size_t>(i)].reply.text, std::to_string(i));
  const auto status = client.status().at(0);
  EXPECT_EQ(status.exchanges, 1u);
  EXPECT_EQ(status.commands, 5000u);
  EXPECT_EQ(status.connections, 1u);
  EXPECT_EQ(status.open_connections, 1);
  EXPECT_GT(status.bytes_in, 5000u * 8);
  EXPECT_GT(status.bytes_out, 5000u * 20);
  EXPECT_GT(status.round_trip_p50, 0us);
  EXPECT_GE(status.round_trip_p99, status.round_trip_p50);
}

TEST_F(ClientOfRedis, GivesTheErrorWithinAScriptsAnswer) {
  RedisServer server;
  Client client(options(server.url()));
  const Answer answer =
      client.call(command({"EVAL", "return {1, 'a', false, redis.error_reply('MY error')}", "0"}), soon());
  ASSERT_EQ(answer.reply.elements.size(), 4u);
  EXPECT_EQ(answer.reply.elements[2].kind, Reply::Kind::nil);
  EXPECT_EQ(answer.reply.elements[3].kind, Reply::Kind::error);
  EXPECT_EQ(answer.reply.elements[3].text, "MY error");
}

TEST_F(ClientOfRedis, ServesManyThreadsOverFourConnections) {
  RedisServer server;
  Client client(options(server.url()));
  std::atomic<int> wrong{0}, done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const std::string value = std::to_string(t) + ':' + std::to_string(i);
        const auto answers = client.call(
            {command({"SET", "k" + std::to_string(t), value}), command({"GET", "k" + std::to_string(t)})},
            soon());
        wrong += answers.size() != 2 || answers[1].reply.text != value;
        ++done;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(done, 3200);
  const auto status = client.status().at(0);
  EXPECT_LE(status.connections, 4u);
  EXPECT_EQ(status.exchanges, 3200u);
}

TEST_F(ClientOfRedis, SignalsNeitherBreakNorProlongACall) {
  RedisServer server;
  ClientOptions with = options(server.url());
  with.timeouts.read = 300ms;
  Client client(std::move(with));
  struct sigaction count {
  }, before{};
  static std::atomic<int> signals{0};
  count.sa_handler = [](int) { ++signals; };  // without SA_RESTART
  ::sigaction(SIGALRM, &count, &before);
  const itimerval often{{0, 500}, {0, 500}}, never{};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  for (int i = 0; i < 100; ++i)
    EXPECT_TRUE(client.call(command({"SET", "k", std::string(100000, 'x')}), soon()));
  server.pause();
  const auto began = base::Clock::now();
  EXPECT_EQ(client.call(command({"PING"}), soon()).fault, Fault::timeout);
  const auto took = base::Clock::now() - began;
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  server.resume();
  EXPECT_GE(took, 299ms);
  EXPECT_LT(took, at_most(3s));
  EXPECT_GT(signals, 50);
}

TEST_F(ClientOfRedis, AServerThatDiesWhileWeSendRaisesNoSignal) {
  if (const char* why = kiln::testing::cannot_fork_busy()) GTEST_SKIP() << why;
  RedisServer server({}, false);  // on a socket of its own: a port can be taken while the server is down
  auto child = std::async(std::launch::async, [&] {
    return kiln::testing::in_child([&] {
      ::signal(SIGPIPE, SIG_DFL);
      ClientOptions with = options(server.unix_url());
      with.breaker.failures = 1000000;
      Client client(std::move(with));
      const std::vector<Command> large(3, command({"SET", "k", std::string(4 << 20, 'x')}));
      int closed = 0;
      while (closed < 10)
        for (const Answer& answer : client.call(large, soon())) closed += answer.fault == Fault::closed;
      return 0;
    });
  });
  while (child.wait_for(15ms) != std::future_status::ready) {
    server.stop();
    server.start();
  }
  EXPECT_EQ(child.get(), 0);
  Client client(options(server.unix_url()));
  EXPECT_TRUE(client.call(command({"PING"}), soon()));
}

TEST_F(ClientOfRedis, AForkedChildUsesSocketsOfItsOwn) {
  RedisServer server;
  Client client(options(server.url()));
  EXPECT_TRUE(client.call(command({"SET", "k", "v"}), soon()));
  const int parents = open_sockets();
  EXPECT_EQ(kiln::testing::in_child([&] {
              if (open_sockets() >= parents) return 1;  // the child has closed inherited sockets
              for (int i = 0; i < 50; ++i)
                if (client.call(command({"ECHO", "child"}), soon()).reply.text != "child") return 2;
              return client.status().at(0).exchanges == 50 ? 0 : 3;
            }),
            0);
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(client.call(command({"ECHO", "parent"}), soon()).reply.text, "parent");
  EXPECT_EQ(client.status().at(0).connections, 1u);  // the child's exit did not close it
}

TEST_F(ClientOfRedis, AChildForkedInTheMiddleOfCallsWaitsForNobody) {
  if (const char* why = kiln::testing::cannot_fork_busy()) GTEST_SKIP() << why;
  RedisServer server;
  Client client(options(server.url()));
  std::atomic<bool> end{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      while (!end)
        if (client.call(command({"ECHO", std::to_string(t)}), soon()).reply.text != std::to_string(t))
          std::abort();
    });
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(kiln::testing::in_child([&] {
                return client.call(command({"ECHO", "child"}), soon()).reply.text == "child" ? 0 : 1;
              }),
              0);
  end = true;
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ClientOfRedis, SpreadsTagsOverServersAndMovesFewWhenOneLeaves) {
  Client three(options("redis://a,b,c")), two(options("redis://a,c"));
  std::array<int, 3> of_three{};
  int moved = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::string tag = std::to_string(i);
    const auto place = three.location(tag);
    ++of_three.at(place);
    const auto now = two.location(tag) == 0 ? 0u : 2u;
    moved += place != 1 && place != now;
  }
  EXPECT_EQ(moved, 0);  // only tags of b may move
  for (const int count : of_three) EXPECT_NEAR(count, 1000, 120);
  EXPECT_EQ(three.location(""), 0u);
}

TEST_F(ClientOfRedis, UsesNoConnectionAgainThatWasIdleForTooLong) {
  RedisServer server;
  for (const auto& [idle, connections] : {std::pair<base::Clock::duration, std::uint64_t>{1h, 1}, {1ms, 2}}) {
    ClientOptions with = options(server.url());
    with.idle = idle;
    Client client(with);
    EXPECT_TRUE(client.call(command({"PING"}), soon()));
    std::this_thread::sleep_for(10ms);
    EXPECT_TRUE(client.call(command({"PING"}), soon()));
    EXPECT_EQ(client.status().at(0).connections, connections);
    EXPECT_EQ(client.status().at(0).open_connections, 1);
  }
}

TEST(RemoteTlsLibrary, IsLoadedByThoseWhoUseIt) {
  EXPECT_EQ(kiln::testing::in_child([&] {
              Client plain({.url = Url::parse("redis://127.0.0.1:1")});
              plain.call({.words = {"PING"}, .tag = {}}, base::Deadline::never());
              if (base::read_proc("/proc/self/maps").find("libcrypto") != std::string::npos) return 1;
              Client secured({.url = Url::parse("rediss://127.0.0.1:1")});
              secured.call({.words = {"PING"}, .tag = {}}, base::Deadline::never());
              return base::read_proc("/proc/self/maps").find("libcrypto") != std::string::npos ? 0 : 2;
            }),
            0);
}

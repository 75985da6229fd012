// A slow or lying server costs a bounded delay and a fault of the right kind. The next call works.
#include <gtest/gtest.h>
#include <malloc.h>
#include <poll.h>
#include <sys/resource.h>

#include "fleet/fault_fixture.hpp"
#include "support/time_limit.hpp"

using namespace kiln;
using namespace kiln::fleet;
using namespace kiln::fleet::test;
using namespace std::chrono_literals;

TEST(RemoteFault, RefusesGarbage) {
  expect_fault(Fault::protocol, [](Peer& peer) {
    peer.command();
    peer.say("HTTP/1.1 400 Bad Request\r\n\r\n");
    peer.wait_for_the_end();
  });
}

TEST(RemoteFault, RefusesACountOfABillion) {
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  for (const char* bytes : {"*1000000000\r\n", "$99999999999\r\n", "*2\r\n*500000000\r\n"})
    expect_fault(Fault::too_large, [bytes](Peer& peer) {
      peer.command();
      peer.say(bytes);
      peer.wait_for_the_end();
    });
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 100 << 10);  // KB
}

TEST(RemoteFault, RefusesALineWithoutEnd) {
  for (const char kind : {'+', '-'})
    for (const char filling : {'a', '\r'}) {
      BadServer server([&](Peer& peer) {
        peer.command();
        peer.say({kind});
        while (peer.say(std::string(1 << 20, filling))) {
        }
      });
      Client client({.url = Url::parse(server.url())});
      Command entry = get("one");
      entry.reply_limit = 16 << 20;
      const Timed first = timed(client, entry);
      EXPECT_EQ(first.answer.fault, Fault::too_large) << first.answer.detail;
      EXPECT_LT(first.took, at_most(kBounded));
      EXPECT_LT(client.status().at(0).bytes_in, 256u << 10);
    }
}

TEST(RemoteFault, KeepsNoCallerThatIsLateHoweverFastTheServerSpeaks) {
  std::atomic<bool> filled = false;
  BadServer server([&](Peer& peer) {
    peer.command();
    peer.say("$16777216\r\n");
    const std::string much(16 << 10, 'x');
    pollfd poll{peer.fd(), POLLOUT, 0};
    while (::poll(&poll, 1, 20) > 0 && peer.say(much)) {
    }
    filled = true;
    peer.wait_for_the_end();
  });
  Connection connection({*Address::numeric("127.0.0.1", static_cast<std::uint16_t>(server.port()))}, nullptr,
                        {}, {.connect = 20s, .read = 20s});
  const auto late = base::Clock::now();
  connection.begin({"*1\r\n$4\r\nPING\r\n", {32 << 20}}, late);
  // The deadline has passed from the start. A step with time left would go on reading what the server sends.
  while (!connection.finished() && connection.traffic().bytes_out() == 0)
    connection.step(base::Clock::now(), late);
  ASSERT_TRUE(base::poll_until(base::Deadline::after(20s), [&] { return filled.load(); }));
  const auto before = connection.traffic().bytes_in();
  connection.step(base::Clock::now(), late);
  EXPECT_GT(connection.traffic().bytes_in(), before);
  EXPECT_LE(connection.traffic().bytes_in() - before, 64u << 10);
}

/// Sends more than a server takes in 30 s, of which it takes some every 15 s, where 20 s are allowed. The times are made
/// up. Returns after how many rounds the connection gave up.
int rounds_of_a_slow_write(bool patient) {
  constexpr std::size_t kSlice = std::size_t{4} << 20;
  std::atomic<int> slices = 0;
  BadServer server([&](Peer& peer) {
    std::string slice(kSlice, 0);
    for (int taken = 0;; ++taken) {
      while (slices <= taken)
        if (!peer.wait(1ms)) return;
      if (::recv(peer.fd(), slice.data(), slice.size(), MSG_WAITALL) <= 0) return;
    }
  });
  Connection connection({*Address::numeric("127.0.0.1", static_cast<std::uint16_t>(server.port()))}, nullptr,
                        {}, {.connect = 20s, .read = 20s, .bytes_per_second = std::uint64_t{1} << 40});
  auto now = base::Clock::now();
  connection.begin({std::string(15 * kSlice, 'x'), {1 << 16}, patient}, now);
  while (!connection.finished() && connection.traffic().bytes_out() == 0) connection.step(base::Clock::now());
  for (int round = 1; round <= 6; ++round) {
    now += 15s;
    ++slices;
    const auto before = connection.traffic().bytes_out();
    const bool goes_on = base::poll_until(base::Deadline::after(60s), [&] {
      if (!connection.finished()) connection.step(now);
      return connection.finished() || connection.traffic().bytes_out() > before;
    });
    if (!goes_on || connection.finished()) return round;
  }
  // It takes no more, once it has what it was allowed to.
  EXPECT_TRUE(base::poll_until(base::Deadline::after(60s), [&] {
    connection.step(now += 21s);
    return connection.finished();
  }));
  EXPECT_EQ(connection.failure().fault, Fault::timeout);
  return 7;
}

TEST(RemoteFault, GivesAWriteForWhichNobodyWaitsTimeWhileTheServerTakesBytes) {
  EXPECT_EQ(rounds_of_a_slow_write(false), 2) << "30 s, where 20 are allowed";
  EXPECT_EQ(rounds_of_a_slow_write(true), 7);
}

TEST(RemoteFault, KeepsNoBufferOfALargeAnswer) {
  BadServer server([value = std::string(16 << 20, 'x')](Peer& peer) {
    while (!peer.command().empty() && peer.say_bulk(value)) {
    }
  });
  const auto in_use = [] {
    const auto info = ::mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  Client client({.url = Url::parse(server.url()), .timeouts = {.connect = 5s, .read = 20s}});
  Command entry = get("one");
  entry.reply_limit = 17 << 20;
  const auto before = in_use();
  for (int i = 0; i < 3; ++i) client.call(entry, never());
  EXPECT_EQ(client.status().at(0).open_connections, 1);
  EXPECT_LT(in_use(), before + (4u << 20));
}

TEST(RemoteFault, GivesUpOnAByteASecond) {
  expect_fault(
      Fault::timeout,
      [](Peer& peer) {
        peer.command();
        for (const char c : std::string("$5\r\nhello\r\n"))
          if (!peer.say({c}) || !peer.wait(1s)) return;
      },
      140ms);
}

TEST(RemoteFault, GivesUpOnAByteASecondInMidValue) {
  expect_fault(
      Fault::timeout,
      [](Peer& peer) {
        peer.command();
        peer.say("$60000\r\n");
        while (peer.say("x") && peer.wait(100ms)) {
        }
      },
      140ms);
}

TEST(RemoteFault, SeesAServerThatClosesInMidValue) {
  expect_fault(Fault::closed, [](Peer& peer) {
    peer.command();
    peer.say("$5000\r\nhalf of it");
  });
}

TEST(RemoteFault, SeesAServerThatClosesInsteadOfAnswering) {
  expect_fault(Fault::closed, [](Peer& peer) { peer.command(); });
}

TEST(RemoteFault, GivesUpOnAServerThatSaysNothing) {
  expect_fault(
      Fault::timeout, [](Peer& peer) { peer.wait_for_the_end(); }, 140ms);
}

TEST(RemoteFault, NeverTakesALateAnswerForTheNextKeys) {
  BadServer server([](Peer& peer) {
    for (auto words = peer.command(); !words.empty(); words = peer.command()) {
      if (words.back().starts_with("slow") && !peer.wait(400ms)) return;
      if (!peer.say_bulk("value of " + words.back())) return;
    }
  });
  ClientOptions options{.url = Url::parse(server.url())};
  options.breaker.failures = 1000;
  Client client(std::move(options));
  int timeouts = 0, answers = 0;
  for (int i = 0; i < 12; ++i) {
    const std::string key = (i % 3 == 0 ? "slow" : "key") + std::to_string(i);
    if (i % 3 == 2) std::this_thread::sleep_for(300ms);  // the late answer has arrived by now
    const Answer answer = client.call(get(key), never());
    timeouts += answer.fault == Fault::timeout;
    answers += static_cast<bool>(answer);
    if (answer) {
      EXPECT_EQ(answer.reply.text, "value of " + key);
    }
  }
  EXPECT_GE(timeouts, 4);
  EXPECT_GE(answers, 4);
}

TEST(RemoteFault, DropsAConnectionOnWhichTheServerSpokeUnasked) {
  std::atomic<int> lies{0};
  BadServer server([&](Peer& peer) {
    const auto words = peer.command();
    if (words.empty()) return;
    peer.say_bulk("value of " + words.back());
    peer.say("$3\r\nlie\r\n");
    ++lies;
    serve(peer);
  });
  ClientOptions options{.url = Url::parse(server.url())};
  options.breaker.failures = 1000;
  Client client(std::move(options));
  for (int i = 0; i < 10; ++i) {
    const std::string key = "key" + std::to_string(i);
    const Answer answer = client.call(get(key), never());
    if (answer) {
      EXPECT_EQ(answer.reply.text, "value of " + key);
    }
    EXPECT_TRUE(base::poll_until(base::Deadline::after(20s), [&] { return lies == server.connections(); }));
  }
  EXPECT_GE(server.connections(), 9);
}

TEST(RemoteFault, TakesNoAnswerToALoginForACommands) {
  for (const bool closes : {true, false}) {
    BadServer server([&](Peer& peer) {
      peer.command();
      peer.command();
      peer.say("+OK\r\n");
      if (!closes) peer.wait_for_the_end();
    });
    Client client({.url = Url::parse("redis://:p@127.0.0.1:" + std::to_string(server.port()) + "/1")});
    const Answer answer = client.call(get("k"), never());
    EXPECT_EQ(answer.fault, closes ? Fault::closed : Fault::timeout) << answer.reply.text;
  }
}

TEST(RemoteFault, ReconnectsWhenTheServerClosedMeanwhile) {
  BadServer server([](Peer& peer) {
    const auto words = peer.command();
    if (!words.empty()) peer.say_bulk("value of " + words.back());
  });
  Client client({.url = Url::parse(server.url())});
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(client.call(get("k"), never()).reply.text, "value of k");
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_EQ(client.status().at(0).faults[0], 5u);
}

TEST(RemoteFault, GivesTheAnswersBeforeTheFault) {
  BadServer server([](Peer& peer) {
    for (int i = 0; i < 4; ++i) peer.command();
    peer.say("$1\r\na\r\n-ERR \x1b[31mno\r\n$100000\r\n");
    peer.wait_for_the_end();
  });
  Client client({.url = Url::parse(server.url())});
  const auto answers = client.call({get("1"), get("2"), get("3"), get("4")}, never());
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_EQ(answers[0].reply.text, "a");
  EXPECT_EQ(answers[1].fault, Fault::refused);
  EXPECT_EQ(answers[1].detail, "ERR ?[31mno");  // a server's text cannot control a terminal
  EXPECT_EQ(answers[2].fault, Fault::too_large);
  EXPECT_EQ(answers[3].fault, Fault::closed);
}

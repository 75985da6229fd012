// rediss:// with a real server and certificates that the test makes.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "fleet/bad_server.hpp"
#include "fleet/certificates.hpp"
#include "fleet/client_calls.hpp"
#include "support/child.hpp"
#include "support/time_limit.hpp"

using namespace kiln;
using namespace kiln::fleet;
using namespace kiln::fleet::test;
using namespace std::chrono_literals;
using kiln::testing::BadServer;
using kiln::testing::Peer;
using kiln::testing::RedisServer;

namespace {

class RemoteTls : public kiln::testing::WithCertificates<::testing::Test> {
 protected:
  void SetUp() override {
    WithCertificates::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    static const bool has_tls = TlsServer("server").running();
    if (!has_tls) GTEST_SKIP() << "this server was built without TLS";
  }

  struct TlsServer : kiln::testing::TlsServer {
    explicit TlsServer(const std::string& certificate, const char* clients = "no")
        : kiln::testing::TlsServer(*files, certificate, clients) {}
  };

  static Answer ping(Client& client) { return client.call({.words = {"PING"}, .tag = {}}, soon()); }
  static Answer ping(const std::string& url) {
    Client client(options(url));
    return ping(client);
  }
  static void expect_tls_fault(const Answer& answer, const std::string& says) {
    EXPECT_EQ(answer.fault, Fault::tls) << name_of(answer.fault) << ' ' << answer.detail;
    EXPECT_NE(answer.detail.find(says), std::string::npos) << answer.detail;
  }
};

}  // namespace

TEST_F(RemoteTls, ChecksTheServersNameOrAddress) {
  TlsServer server("server");
  EXPECT_EQ(ping(server.at("localhost") + ca()).reply.text, "PONG");
  EXPECT_EQ(ping(server.at("127.0.0.1") + ca()).reply.text, "PONG");
}

TEST_F(RemoteTls, MovesLargeValuesAndManyCommands) {
  TlsServer server("server");
  Client client(options(server.at("localhost") + ca()));
  std::string value(8 << 20, 'x');
  for (std::size_t i = 0; i < value.size(); i += 97) value[i] = static_cast<char>(i);
  std::vector<Command> commands = {{.words = {"SET", "big", value}, .tag = {}},
                                   {.words = {"GET", "big"}, .tag = {}, .reply_limit = 9 << 20}};
  for (int i = 0; i < 2000; ++i) commands.push_back({.words = {"ECHO", std::to_string(i)}, .tag = {}});
  const auto answers = client.call(commands, soon());
  EXPECT_EQ(answers[0].reply.text, "OK") << answers[0].detail;
  EXPECT_TRUE(answers[1].reply.text == value) << answers[1].detail;
  for (int i = 0; i < 2000; ++i)
    ASSERT_EQ(answers[static_cast<std::size_t>(i) + 2].reply.text, std::to_string(i));
  EXPECT_TRUE(ping(client));
  EXPECT_EQ(client.status().at(0).connections, 1u);  // session tickets do not count as unexpected bytes
}

TEST_F(RemoteTls, RefusesAnUnknownAuthority) {
  TlsServer server("server");
  expect_tls_fault(ping(server.at("localhost") + ca("stranger")), "certificate");
  expect_tls_fault(ping(server.at("localhost")), "certificate");  // trusts the system's authorities only
}

TEST_F(RemoteTls, RefusesAnExpiredCertificate) {
  TlsServer server("expired");
  expect_tls_fault(ping(server.at("localhost") + ca()), "expired");
}

TEST_F(RemoteTls, RefusesACertificateOfAnotherHost) {
  TlsServer server("elsewhere");
  expect_tls_fault(ping(server.at("localhost") + ca()), "hostname mismatch");
  expect_tls_fault(ping(server.at("127.0.0.1") + ca()), "IP address mismatch");
}

TEST_F(RemoteTls, ShowsItsCertificateWhenTheServerWantsOne) {
  TlsServer server("server", "yes");
  const std::string url = server.at("localhost") + ca();
  EXPECT_EQ(ping(url + shown("client")).reply.text, "PONG");
  expect_tls_fault(ping(url), "certificate required");
  expect_tls_fault(ping(url + shown("foreign")), "unknown ca");
}

TEST_F(RemoteTls, SaysWhichFileIsNotUsable) {
  const std::string url = "rediss://127.0.0.1:1";
  expect_tls_fault(ping(url + "?ca=/nowhere.pem"), "ca=/nowhere.pem");
  expect_tls_fault(ping(url + ca() + "&cert=/nowhere.pem&key=/n"), "cert=/nowhere.pem");
  expect_tls_fault(ping(url + ca() + shown("client", "server")), "key=");
  // A key with a password is refused, without a question on the terminal.
  expect_tls_fault(ping(url + ca() + shown("client", "locked")), "key=");
}

TEST_F(RemoteTls, TakesReplacedFilesWithoutARestart) {
  TlsServer server("server");
  files->copy("stranger.pem", "current.pem");
  Client client(options(server.at("localhost") + ca("current")));
  EXPECT_EQ(ping(client).fault, Fault::tls);
  files->copy("ca.pem", "current.pem");
  EXPECT_EQ(ping(client).reply.text, "PONG");
}

TEST_F(RemoteTls, ASecretMeetsOnlyAServerThatShowedWhoItIs) {
  TlsServer server("elsewhere");
  Client client(options("rediss://:p@localhost:" + std::to_string(server.tls_port) + ca()));
  EXPECT_EQ(ping(client).fault, Fault::tls);
  EXPECT_EQ(client.status().at(0).bytes_out, 0u);
}

TEST_F(RemoteTls, RefusesWhatSpeaksNoTls) {
  RedisServer plain;
  ClientOptions hasty = options("rediss://localhost:" + std::to_string(plain.port()) + ca());
  hasty.timeouts.connect = 200ms;
  Client client(std::move(hasty));
  EXPECT_EQ(ping(client).fault, Fault::timeout);  // Redis waits for the end of what it reads as a line
  BadServer garbage([](Peer& peer) { peer.say("SSH-2.0-OpenSSH_9.2\r\n"), peer.wait_for_the_end(); });
  EXPECT_EQ(ping("rediss://127.0.0.1:" + std::to_string(garbage.port()) + ca()).fault, Fault::tls);
  TlsServer server("server");
  const Answer unsecured = ping("redis://127.0.0.1:" + std::to_string(server.tls_port));
  EXPECT_TRUE(unsecured.fault == Fault::protocol || unsecured.fault == Fault::closed)
      << name_of(unsecured.fault);
}

TEST_F(RemoteTls, AHandshakeHasItsDeadline) {
  BadServer silent([](Peer& peer) { peer.wait_for_the_end(); });
  Client client({.url = Url::parse("rediss://127.0.0.1:" + std::to_string(silent.port()) + ca())});
  const auto began = base::Clock::now();
  EXPECT_EQ(ping(client).fault, Fault::timeout);
  const auto took = base::Clock::now() - began;
  EXPECT_GE(took, 95ms);
  EXPECT_LT(took, at_most(2500ms));
}

TEST_F(RemoteTls, AServerThatStopsIsGivenUpAndComesBack) {
  TlsServer server("server");
  ClientOptions with = options(server.at("localhost") + ca());
  with.timeouts.read = 150ms;
  Client client(std::move(with));
  EXPECT_TRUE(ping(client));
  server.pause();
  EXPECT_EQ(ping(client).fault, Fault::timeout);
  server.resume();
  EXPECT_TRUE(
      base::poll_until(base::Deadline::after(10s), [&] { return ping(client).reply.text == "PONG"; }));
  server.stop();
  EXPECT_FALSE(ping(client));
  server.start();
  EXPECT_TRUE(
      base::poll_until(base::Deadline::after(10s), [&] { return ping(client).reply.text == "PONG"; }));
}

TEST_F(RemoteTls, ServesManyThreadsAndForkedChildren) {
  TlsServer server("server");
  Client client(options(server.at("localhost") + ca()));
  EXPECT_TRUE(ping(client));
  EXPECT_EQ(kiln::testing::in_child([&] { return ping(client).reply.text == "PONG" ? 0 : 1; }), 0);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i)
        wrong +=
            client.call({.words = {"ECHO", std::to_string(t * 1000 + i)}, .tag = {}}, soon()).reply.text !=
            std::to_string(t * 1000 + i);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(client.status().at(0).connections, 4u);
}

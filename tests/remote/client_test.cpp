// The client against a real server.
#include "remote/client.hpp"

#include <gtest/gtest.h>

#include "remote/redis_server.hpp"

using namespace kiln;
using namespace kiln::remote;
using namespace std::chrono_literals;
using kiln::testing::RedisServer;

namespace {

class ClientOfRedis : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!RedisServer::installed()) GTEST_SKIP() << "redis-server is not installed";
  }
  static base::Deadline soon() { return base::Deadline::after(10s); }
  /// Timeouts that this machine keeps while it is busy.
  static ClientOptions options(const std::string& url) {
    ClientOptions out{.url = Url::parse(url)};
    out.timeouts = {.connect = 5s, .read = 5s};
    return out;
  }
};

Command command(std::vector<std::string> words) { return {.words = std::move(words), .tag = {}}; }

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

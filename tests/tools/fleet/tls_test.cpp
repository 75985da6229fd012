// rediss:// configured as users do it: with KILN_REMOTE, through the command.
#include <algorithm>

#include "fleet/certificates.hpp"
#include "support/places.hpp"
#include "support/shifted_clock.hpp"
#include "tools/fleet/fixture.hpp"

namespace kiln::test {
namespace {

using namespace std::chrono_literals;
using testing::TlsServer;

class FleetTls : public testing::WithCertificates<FleetCommand> {
 protected:
  static bool comes_true(const std::function<bool()>& condition) {
    return base::poll_until(base::Deadline::after(60s), condition);
  }
  /// Several new nodes try, one after the other: a handshake has 100 ms,
  /// which may be too short on a busy machine.
  bool is_fetched(int n, const std::string& url) {
    return comes_true([&] {
      const Environment fresh = reader("reader" + std::to_string(++nodes_), url);
      return kiln(compile(n), fresh).json()["outcome"] == "remote";
    });
  }

  /// Every kernel is served. Each command that shows the tier says why the tier is off.
  void expect_refusal(const std::string& url, const std::string& says, const Environment& more = {}) {
    Environment a = node("a" + std::to_string(++nodes_), url);
    for (const auto& [name, value] : more) a[name] = value;
    const Finished made = kiln(compile(3), a);
    EXPECT_EQ(made.status, 0);
    EXPECT_EQ(made.json()["outcome"], "compiled");
    const auto c = counts(a);
    EXPECT_EQ(c["hits"]["remote"], 0);
    EXPECT_EQ(c["remote_puts"]["failed"], 1);
    EXPECT_GE(c["remote_misses"]["refused"].get<int>() + c["remote_misses"]["timeout"].get<int>(), 1)
        << c.dump(2);
    nlohmann::json server;
    ASSERT_TRUE(comes_true([&] {
      server = kiln({"remote", "status", "--json"}, a).json()["servers"][0];
      return server["fault"] != "timeout";
    }));
    EXPECT_EQ(server["fault"], "tls");
    EXPECT_NE(server["detail"].get<std::string>().find(says), std::string::npos) << server.dump(2);
    EXPECT_EQ(kiln({"remote", "status", "--strict"}, a).status, 5);
    EXPECT_EQ(kiln({"remote", "push", "--all"}, a).status, 3);
    write("plan.toml", "[[prewarm]]\ntemplate = \"scale\"\nN = 5\n");
    EXPECT_EQ(kiln({"prewarm", path("plan.toml"), "--remote", "--strict"}, a).status, 5);
    EXPECT_TRUE(comes_true([&] {
      const auto doctor = kiln({"doctor", "--json"}, a).json();
      return std::any_of(doctor["findings"].begin(), doctor["findings"].end(), [&](const nlohmann::json& f) {
        return f["name"] == "remote" && f["text"].get<std::string>().find(says) != std::string::npos &&
               f["fix"].get<std::string>().find("certificate") != std::string::npos;
      });
    })) << "doctor says it, too, and what to do";
  }

  int nodes_ = 0;
};

TEST_F(FleetTls, EachCommandShowsItsCertificateAndChecksTheServers) {
  TlsServer server(*files, "server", "yes");
  const std::string url = server.at("localhost") + ca() + shown("client");
  Environment job = node("job", url);
  job.erase("KILN_REMOTE_MODE");
  write("plan.toml", "[[prewarm]]\ntemplate = \"scale\"\nN = [1, 2]\n");
  ASSERT_TRUE(comes_true([&] {
    return kiln({"prewarm", path("plan.toml"), "--remote", "--strict"}, job).status == 0;
  }));
  for (const int n : {1, 2}) EXPECT_TRUE(is_fetched(n, url)) << n;
  Environment b = node("b", url);
  EXPECT_EQ(kiln(compile(3), b).status, 0);
  EXPECT_TRUE(comes_true([&] { return kiln({"remote", "push", "--all", "--strict"}, b).status == 0; }));
  EXPECT_TRUE(is_fetched(3, url));
  EXPECT_TRUE(comes_true([&] { return kiln({"remote", "status", "--strict"}, b).status == 0; }));
  Environment c = reader("c", url);
  EXPECT_TRUE(comes_true([&] { return kiln({"remote", "pull", "--all", "--strict"}, c).status == 0; }));
  c.erase("KILN_REMOTE");
  EXPECT_EQ(kiln(compile(3), c).json()["outcome"], "disk");
  const Finished shows = kiln({"remote", "status"}, b);
  EXPECT_EQ((shows.out + shows.err).find("client.key"), std::string::npos) << "nor where keys lie";
}

TEST_F(FleetTls, AServersCertificateThatIsNotGoodIsSaidAndCostsCompiles) {
  {
    TlsServer server(*files, "expired");
    expect_refusal(server.at("localhost") + ca(), "certificate has expired");
  }
  TlsServer elsewhere(*files, "elsewhere");
  expect_refusal(elsewhere.at("localhost") + ca(), "hostname mismatch");
  expect_refusal(elsewhere.at("127.0.0.1") + ca(), "IP address mismatch");
}

TEST_F(FleetTls, ANodeWithoutAGoodCertificateIsTurnedAway) {
  TlsServer server(*files, "server", "yes");
  expect_refusal(server.at("localhost") + ca("stranger") + shown("client"),
                 "self-signed certificate in certificate chain");
  expect_refusal(server.at("localhost") + ca(), "alert certificate required");
  expect_refusal(server.at("localhost") + ca() + shown("foreign"), "alert unknown ca");
}

TEST_F(FleetTls, ANodesWrongClockIsSeenInTheCertificates) {
  TlsServer server(*files, "server");
  testing::shift_clocks_of(path("clock"), -365 * 24 * 3600);
  expect_refusal(server.at("localhost") + ca(), "certificate is not yet valid",
                 {{"LD_PRELOAD", places::kShiftedClock}, {"SHIFTED_CLOCK", path("clock")}});
}

}  // namespace
}  // namespace kiln::test

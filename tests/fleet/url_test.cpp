// Values of KILN_REMOTE, and passwords, which never appear in an error.
#include "cache/fleet/redis/url.hpp"

#include <gtest/gtest.h>

#include "kiln/error.hpp"

using namespace kiln;
using fleet::Url;

namespace {
std::string refusal(const std::string& text) {
  try {
    Url::parse(text);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Errc::invalid_argument);
    return e.what();
  }
  return "";
}
}  // namespace

TEST(RemoteUrl, ReadsOneServer) {
  const Url url = Url::parse("redis://cache.example:7000/3");
  ASSERT_EQ(url.servers.size(), 1u);
  EXPECT_EQ(url.servers[0].name, "cache.example:7000");
  EXPECT_EQ(url.servers[0].host, "cache.example");
  EXPECT_EQ(url.servers[0].port, 7000);
  EXPECT_EQ(url.database, 3);
  EXPECT_FALSE(url.tls || url.cluster || url.authenticate);
  EXPECT_EQ(url.safe(), "redis://cache.example:7000/3");
}

TEST(RemoteUrl, HasTheUsualPort) { EXPECT_EQ(Url::parse("redis://h").servers[0].name, "h:6379"); }

TEST(RemoteUrl, ReadsUserPasswordAndDecodesThem) {
  const Url url = Url::parse("rediss://kiln%40site:p%3Aw%2f%40%2C@h:1/0?ca=/etc/a%26b.pem&cert=c&key=k");
  EXPECT_EQ(url.user, "kiln@site");
  EXPECT_EQ(url.password, "p:w/@,");
  EXPECT_TRUE(url.tls && url.authenticate);
  EXPECT_EQ(url.ca, "/etc/a&b.pem");
  EXPECT_EQ(url.cert, "c");
  EXPECT_EQ(url.key, "k");
  EXPECT_EQ(url.safe(), "rediss://h:1");
  EXPECT_EQ(Url::parse("redis://:secret@h").password, "secret");
  EXPECT_EQ(Url::parse("redis://:secret@h").user, "");
}

TEST(RemoteUrl, ReadsIpv6InBrackets) {
  const Url url = Url::parse("redis://[fd00::1%25eth0]:7,[::1]");
  EXPECT_EQ(url.servers[1].host, "::1");
  EXPECT_EQ(url.servers[1].name, "[::1]:6379");
  EXPECT_EQ(url.servers[0].port, 7);
}

TEST(RemoteUrl, ReadsUnixSockets) {
  const Url url = Url::parse("redis+unix:///run/a%20b?db=2&user=u&password=p");
  EXPECT_EQ(url.servers[0].path, "/run/a b");
  EXPECT_EQ(url.servers[0].name, "/run/a b");
  EXPECT_EQ(url.database, 2);
  EXPECT_EQ(url.user + '/' + url.password, "u/p");
  EXPECT_EQ(url.safe(), "redis+unix:///run/a b?db=2");
}

TEST(RemoteUrl, ReadsSeveralServersWhichShareTheRest) {
  for (const char* text :
       {"redis://u:p@a,b:2,c/4", "redis://u:p@a/4,redis://u:p@b:2/4,c", "redis://a,redis://u:p@b:2,c/4",
        "redis://u:p@a,u:p@b:2/4,c", "redis://a,b:2,c/4?user=u&password=p",
        "redis://a?user=u&password=p,redis://b:2,c/4"}) {
    const Url url = Url::parse(text);
    ASSERT_EQ(url.servers.size(), 3u) << text;
    EXPECT_EQ(url.safe(), "redis://a:6379,b:2,c:6379/4") << text;
    EXPECT_EQ(url.user + ':' + url.password, "u:p") << text;
  }
  EXPECT_EQ(Url::parse("redis://a,b,a").servers.size(), 2u);
  EXPECT_TRUE(Url::parse("redis://a,b?cluster=true").cluster);
  EXPECT_EQ(Url::parse("redis://a?timeout=2500,b").timeout, std::chrono::milliseconds(2500));
  EXPECT_EQ(Url::parse("redis://a").timeout.count(), 0);
}

TEST(RemoteUrl, RefusesWhatMakesNoSense) {
  for (const char* text : {"",
                           "cache:6379",
                           "http://h",
                           "redis://",
                           "redis://h:0",
                           "redis://h:65536",
                           "redis://h:port",
                           "redis://h:",
                           "redis://h/x",
                           "redis://h/-1",
                           "redis://h/70000",
                           "redis://h?colour=red",
                           "redis://h?ca=/f",
                           "redis://[::1",
                           "redis://[::1]x",
                           "redis://h,,g",
                           "redis://h,",
                           "redis://h?cluster=maybe",
                           "redis://h?timeout=",
                           "redis://h?timeout=0",
                           "redis://h?timeout=-1",
                           "redis://h?timeout=600001",
                           "redis://h?timeout=1s",
                           "redis://a?timeout=1,b?timeout=2",
                           "redis://h/1?cluster=true",
                           "rediss://h?cert=c",
                           "redis://%zz@h",
                           "redis://a%0",
                           "redis://u%00@h",
                           "redis+unix://relative",
                           "redis+unix://",
                           "redis://a b",
                           "redis://a/1,b/2",
                           "redis://u@a,v@b",
                           "redis://a,rediss://b"})
    EXPECT_NE(refusal(text), "") << text;
  EXPECT_NE(refusal("redis+unix:///" + std::string(200, 'x')), "");
}

TEST(RemoteUrl, TakesNoPartOfAPasswordForAServer) {
  for (const char* text : {"redis://me:12,34@h", "redis://me:12,34@h,g", "redis://:12,34@h",
                           "redis://12,me:34@h", "redis://h?password=12,34",
                           "redis://h?user=me&password=12,34,g", "redis+unix:///run/s?password=/12,/34"}) {
    EXPECT_NE(refusal(text).find("encode"), std::string::npos) << text << ": " << refusal(text);
  }
  EXPECT_EQ(Url::parse("redis://me:12%2C34@h").password, "12,34");
  EXPECT_EQ(Url::parse("redis://h?password=12%2C34").servers.size(), 1u);
}

TEST(RemoteUrl, NeverRepeatsAPasswordInAnError) {
  // In a wrong URL a password may stand in any place.
  for (const char* text : {"redis://u:hunter2/x@h:1", "redis://u:hunter2@h:x", "redis://:hunter2,x@h",
                           "redis://h:hunter2", "hunter2", "redis://h/hunter2", "redis://h?hunter2=1",
                           "redis://u:hunter2%zz@h", "hunter2://h", "redis://u:a@h,u:hunter2@g"}) {
    const std::string message = refusal(text);
    EXPECT_NE(message, "") << text;
    EXPECT_EQ(message.find("hunter2"), std::string::npos) << message;
  }
}

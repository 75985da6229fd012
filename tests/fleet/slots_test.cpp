// Hash slots and redirections of Redis Cluster.
#include "cache/fleet/redis/cluster_slots.hpp"

#include <gtest/gtest.h>

using namespace kiln::fleet;

TEST(RemoteSlots, AreThoseOfTheClusterSpecification) {
  EXPECT_EQ(hash_slot_of("123456789"), 0x31C3u);
  EXPECT_EQ(hash_slot_of("foo"), 12182u);
  EXPECT_EQ(hash_slot_of(""), 0u);
}

TEST(RemoteSlots, ReadRedirections) {
  const auto moved = redirection("MOVED 3999 127.0.0.1:6381");
  ASSERT_TRUE(moved);
  EXPECT_FALSE(moved->ask);
  EXPECT_EQ(moved->hash_slot, 3999u);
  EXPECT_EQ(moved->to.host, "127.0.0.1");
  EXPECT_EQ(moved->to.port, 6381u);
  const auto ask = redirection("ASK 0 fd00::1:7000");
  ASSERT_TRUE(ask && ask->ask);
  EXPECT_EQ(ask->to.host, "fd00::1");
  EXPECT_EQ(redirection("MOVED 1 :7000")->to.host, "");  // the host that was asked
  EXPECT_EQ(redirection("MOVED 1 ?:7000")->to.host, "");
  for (const char* text :
       {"ERR", "MOVED", "MOVED 1", "MOVED x h:1", "MOVED 16384 h:1", "MOVED 1 h", "MOVED 1 h:0",
        "MOVED 1 h:65536", "MOVED 1 h:1x", "MOVED -1 h:1", "MOVED 1 h/../:1", "ASK 1 h x:1"})
    EXPECT_FALSE(redirection(text)) << text;
}

TEST(RemoteSlots, LeaveOutRowsThatMakeNoSense) {
  const auto integer = [](std::int64_t value) { return Reply{Reply::Kind::integer, value, {}, {}}; };
  const auto text = [](const char* value) { return Reply{Reply::Kind::bulk, 0, value, {}}; };
  const auto array = [](std::vector<Reply> elements) {
    return Reply{Reply::Kind::array, 0, {}, std::move(elements)};
  };
  const auto row = [&](std::int64_t first, std::int64_t last, const char* host, std::int64_t port) {
    return array({integer(first), integer(last), array({text(host), integer(port), text("id")})});
  };
  const auto ranges = hash_slot_ranges(
      array({row(0, 100, "a", 1), row(101, 16384, "a", 1), row(5, 4, "a", 1), row(-1, 4, "a", 1),
             row(0, 1, "a b", 1), row(0, 1, "a", 70000), array({}), integer(3), row(200, 16383, "", 2)}));
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges[0].last, 100u);
  EXPECT_EQ(ranges[1].owner.host, "");
}

// Blobs through the fleet's tier: also a blob that is larger than an entry, and one whose part is missing.
#include <optional>

#include "cache/fleet/redis/keys.hpp"
#include "fleet/client_calls.hpp"
#include "fleet/redis_server.hpp"
#include "runtime/blob/blob_contents.hpp"
#include "runtime/blob/blob_space.hpp"
#include "runtime/path/fleet_fixture.hpp"
#include "runtime/service/service.hpp"
#include "support/nightly.hpp"

namespace kiln::runtime {
namespace {

using testing::noise;
using testing::soon;

class BlobFleetTest : public testing::FleetTest {
 protected:
  void SetUp() override {
    FleetTest::SetUp();
    if (!testing::RedisServer::installed()) GTEST_SKIP() << "no redis-server on this machine";
    server_.emplace();
  }
  bool forget_on_server(const Key& key) const {
    fleet::Client client(fleet::test::options(server_->unix_url()));
    const auto asked = fleet::test::command({"EXISTS", fleet::entry_key(key)});
    if (client.call(asked, fleet::test::soon()).reply.integer != 1) return false;
    client.call(fleet::test::command({"DEL", fleet::entry_key(key)}), fleet::test::soon());
    return client.call(asked, fleet::test::soon()).reply.integer == 0;
  }
  static BlobSpace& space_of(Service& service, bool behind = false) {
    BlobSpaceOptions o{"s", "v1"};
    o.behind = behind;
    return service.blobs().open(o);
  }
  /// A node that waits for the fleet longer than a test may take.
  Options waiting_node(const std::string& name) const {
    Options o = node(name, server_->patient_url());
    o.remote_budget_s = 3600;
    return o;
  }
  std::optional<testing::RedisServer> server_;
};

TEST_F(BlobFleetTest, AnotherNodeFindsBlobsOfAnySize) {
  const std::string large = noise((static_cast<std::size_t>(ci_or_night(30, 80)) << 20) + 77),
                    middle = noise(std::size_t{20} << 20);
  for (const bool behind : {false, true}) {
    const std::string suffix = behind ? "behind" : "";
    {
      Service a(node("a" + suffix, server_->patient_url()));
      BlobSpace& space = space_of(a, behind);
      std::string why;
      space.put("small" + suffix, "content", nullptr, why);
      space.put("middle" + suffix, middle, nullptr, why);
      space.put("large" + suffix, large, nullptr, why);
      ASSERT_TRUE(a.core().path().flush(soon()));
    }
    Service b(node("b" + suffix, server_->patient_url()));
    BlobSpace& space = space_of(b, behind);
    EXPECT_EQ(space.get("small" + suffix), "content");
    EXPECT_TRUE(space.get("middle" + suffix) == middle);
    EXPECT_TRUE(space.get("large" + suffix) == large);
    EXPECT_EQ(space.counts().remote_hits.load(), 3u);
    EXPECT_EQ(space.counts().puts.load(), 0u) << "what comes from the tier is no put of the caller";
    EXPECT_TRUE(space.get("large" + suffix) == large);
    EXPECT_EQ(space.counts().remote_hits.load(), 3u) << "it is in the store now";
  }
}

TEST_F(BlobFleetTest, ABlobWithoutOneOfItsPartsIsAMiss) {
  const std::string large = noise(std::size_t{30} << 20);
  {
    Service a(node("a", server_->patient_url()));
    std::string why;
    space_of(a).put("large", large, nullptr, why);
    ASSERT_TRUE(a.core().path().flush(soon()));
  }
  cache::BlobFacts facts;
  cache::each_record({"s", "v1", "large"}, large, fleet::kMostEnvelope / 4 * 3,
                     [&](cache::Record&& record) { facts = cache::decode_blob(record.facts); });
  ASSERT_EQ(facts.parts, 3u);
  ASSERT_TRUE(forget_on_server(cache::blob_part_key(facts, 1).key));
  Service b(reader("b", server_->patient_url()));
  BlobSpace& space = space_of(b);
  EXPECT_EQ(space.get("large"), std::nullopt);
  EXPECT_EQ(space.counts().misses.load(), 1u);
}

TEST_F(BlobFleetTest, TheWaitForAnotherNodeEndsWithTheDeadlineOfTheLease) {
  Service a(node("a", server_->patient_url())), b(waiting_node("b"));
  const auto held = space_of(a).lease("k", soon());
  ASSERT_TRUE(held.lease);
  BlobSpace& space = space_of(b);
  const auto late = space.lease("k", base::Deadline::after(std::chrono::milliseconds(200)));
  EXPECT_FALSE(late.found);
  EXPECT_TRUE(late.lease) << "other processes of this host wait for it";
  EXPECT_EQ(space.counts().waits.load(), 1u);
  EXPECT_EQ(space.counts().wait_timeouts.load(), 1u);
  EXPECT_EQ(space.counts().misses.load(), 1u);
}

TEST_F(BlobFleetTest, ALeaseThatIsNotWaitedForIsStillTakenFromTheFleet) {
  Service a(node("a", server_->patient_url())), b(node("b", server_->patient_url()));
  const auto held = space_of(a).lease("k", base::Deadline::after({}));
  ASSERT_TRUE(held.lease);
  EXPECT_EQ(stats_of(a).remote_leases, 1u);
  EXPECT_TRUE(space_of(b).lease("k", base::Deadline::after({})).lease);
  EXPECT_EQ(stats_of(b).remote_leases, 0u) << "the other node has it";
}

TEST_F(BlobFleetTest, AnInterruptEndsTheWaitForAnotherNode) {
  Service a(node("a", server_->patient_url())), b(waiting_node("b"));
  const auto held = space_of(a).lease("k", soon());
  ASSERT_TRUE(held.lease);
  BlobSpace& space = space_of(b);
  int asked = 0;
  const auto interrupted = space.lease("k", base::Deadline::never(), [&] { return ++asked == 3; });
  EXPECT_FALSE(interrupted.found || interrupted.lease);
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(space.counts().misses.load(), 0u);
  EXPECT_EQ(space.counts().wait_timeouts.load(), 0u);
}

}  // namespace
}  // namespace kiln::runtime

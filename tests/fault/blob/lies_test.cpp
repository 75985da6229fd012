// A tier that lies: other bytes, other keys, other signers, truncated and huge entries, parts of other blobs. Each is a
// miss, and never other bytes.
#include "cache/fleet/redis/keys.hpp"
#include "fleet/client_calls.hpp"
#include "fleet/redis_server.hpp"
#include "runtime/path/fleet_fixture.hpp"
#include "support/nightly.hpp"
#include "tests/fault/blob/fixture.hpp"
#include "tests/support/shifted_clock.hpp"

namespace kiln::runtime::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

class LyingTier : public testing::FleetTest {
 protected:
  void SetUp() override {
    FleetTest::SetUp();
    if (IsSkipped()) return;
    if (!testing::RedisServer::installed()) GTEST_SKIP() << "no redis-server on this machine";
    base::set_log_sink([](base::Level, std::string_view) {});
    server_.emplace();
    client_.emplace(fleet::test::options(server_->unix_url()));
  }
  void TearDown() override {
    kiln_shift_clock(0);
    base::set_log_sink(nullptr);
  }
  static BlobSpace& space_of(Service& service) { return service.blobs().open({"s", "v1"}); }
  static Key key_of(const std::string& key) { return cache::blob_key({"s", "v1", key}).key; }

  void publish(const std::string& key, const std::string& content) {
    Service service(node("a", server_->unix_url()));
    std::string why;
    space_of(service).put(key, content, nullptr, why);
    ASSERT_TRUE(service.core().path().flush(soon()));
  }
  std::string entry(const Key& key) {
    return client_->call(fleet::test::command({"GET", fleet::entry_key(key)}), fleet::test::soon())
        .reply.text;
  }
  void set_entry(const Key& key, const std::string& bytes) {
    client_->call(fleet::test::command({"SET", fleet::entry_key(key), bytes}), fleet::test::soon());
  }
  /// The blob as a node finds it whose store is empty.
  std::string read(const std::string& key) {
    Service service(reader("b" + std::to_string(++nodes_), server_->unix_url()));
    const auto got = space_of(service).get(key);
    forget(tree_.at("b" + std::to_string(nodes_)));
    return got ? std::string(got->view) : "(absent)";
  }
  std::optional<testing::RedisServer> server_;
  std::optional<fleet::Client> client_;
  int nodes_ = 0;
};

TEST_F(LyingTier, ADamagedForeignOrHugeEntryIsAMiss) {
  publish("k", "the content of k");
  publish("other", "the content of other");
  const std::string good = entry(key_of("k")), other = entry(key_of("other"));
  ASSERT_FALSE(good.empty());
  EXPECT_EQ(read("k"), "the content of k");
  const auto lie = [&](const std::string& bytes, const std::string& what) {
    set_entry(key_of("k"), bytes);
    EXPECT_EQ(read("k"), "(absent)") << what;
  };
  lie(other, "the entry of another key");
  lie("", "nothing");
  lie("no entry at all", "text");
  lie(std::string(20 * kMiB, 'x'), "20 MiB");
  lie(good + "x", "a byte more");
  lie(good + std::string(17 * kMiB, '\0'), "the entry, and more than an entry may have");
  for (std::size_t size = 0; size < good.size(); size += good.size() / 16 + 1)
    lie(good.substr(0, size), "cut to " + std::to_string(size));
  for (std::size_t at = 0; at < good.size(); at += good.size() / 32 + 1) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    lie(bytes, "a bit of byte " + std::to_string(at));
  }
  set_entry(key_of("k"), good);
  EXPECT_EQ(read("k"), "the content of k");
}

TEST_F(LyingTier, AnEntryThatAnotherKeySignedIsAMiss) {
  publish("k", "the content of k");
  const std::string good = entry(key_of("k"));
  const trust::SecretKey key = trust::SecretKey::generate();
  tree_.write("stranger.key", key.file().bytes());
  ::chmod(tree_.at("stranger.key").c_str(), 0600);
  {
    Options stranger = node("stranger", server_->unix_url());
    stranger.remote_sign = tree_.at("stranger.key");
    Service service(stranger);
    std::string why;
    space_of(service).put("k", "code of a stranger", nullptr, why);
    ASSERT_TRUE(service.core().path().flush(soon()));
  }
  ASSERT_NE(entry(key_of("k")), good);
  EXPECT_EQ(read("k"), "(absent)");
}

TEST_F(LyingTier, PartsThatAreExchangedOrOfAnotherBlobAreAMiss) {
  KILN_NIGHTLY_ONLY();  // a server must answer within a second with 12 MiB
  std::string large = noise(26 * kMiB), older = large;
  older[5] = static_cast<char>(older[5] ^ 1);
  const auto facts_of = [](const std::string& content) {
    cache::BlobFacts out;
    cache::each_record({"s", "v1", "k"}, content, kTierPart,
                       [&](cache::Record&& record) { out = cache::decode_blob(record.facts); });
    return out;
  };
  publish("k", older);
  const cache::BlobFacts of_older = facts_of(older), facts = facts_of(large);
  const std::string older_head = entry(key_of("k"));
  publish("k", large);
  ASSERT_EQ(facts.parts, 3u);
  const auto part = [&](const cache::BlobFacts& of, std::uint32_t i) {
    return cache::blob_part_key(of, i).key;
  };
  const std::string head = entry(key_of("k")), first = entry(part(facts, 0)), second = entry(part(facts, 1));
  EXPECT_TRUE(read("k") == large);
  const auto lie = [&](const Key& key, const std::string& bytes, const std::string& truth, const char* what) {
    set_entry(key, bytes);
    EXPECT_EQ(read("k"), "(absent)") << what;
    set_entry(key, truth);
  };
  lie(part(facts, 0), second, first, "the second part in the place of the first");
  lie(part(facts, 0), entry(part(of_older, 0)), first, "a part of an older blob of the key");
  lie(part(facts, 1), head, second, "the head in the place of a part");
  lie(key_of("k"), first, head, "a part in the place of the head");
  set_entry(key_of("k"), older_head);
  EXPECT_TRUE(read("k") == older) << "a replay gives the older blob, whole";
}

TEST_F(LyingTier, ANodeWithAnotherClockReadsAndWritesTheSameBlobs) {
  for (const std::int64_t shift : {std::int64_t{10} * 365 * 24 * 3600, std::int64_t{-10} * 365 * 24 * 3600}) {
    const std::string key = "k" + std::to_string(shift);
    kiln_shift_clock(shift);
    publish(key, "made");
    kiln_shift_clock(0);
    EXPECT_EQ(read(key), "made");
    publish("of today", "now");
    kiln_shift_clock(shift);
    EXPECT_EQ(read("of today"), "now");
    kiln_shift_clock(0);
  }
}

}  // namespace
}  // namespace kiln::runtime::test

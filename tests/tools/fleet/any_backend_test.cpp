// The commands of the fleet's tier with a backend that is not Redis. They need
// only the functions of the backend interface.
#include <map>

#include "cache/blob/blob.hpp"
#include "runtime/blob/blob_contents.hpp"
#include "runtime/blob/blob_space.hpp"
#include "runtime/state/open_tier.hpp"
#include "tools/fleet/any_backend.hpp"
#include "tools/kiln/fleet/prune.hpp"
#include "tools/kiln/store/tier/look.hpp"
#include "tools/kiln/store/tier/transfer.hpp"

namespace kiln::cli {
namespace {

using testing::AnyBackend;
using testing::some_entry;

TEST_F(AnyBackend, StatusShowsWhatTheServerSaysAndNullForTheRest) {
  fleet::ServerLook said;
  said.version = "1";
  said.used_bytes = 4711;
  said.persists = false;
  server_->say(said);
  put(some_entry(1), *key_);
  const auto looks = look_at_servers(tier_);
  ASSERT_EQ(looks.size(), 1u);
  const Json up = json_of(looks[0]);
  EXPECT_EQ(up["name"], "memory");
  EXPECT_EQ(up["answers"], true);
  EXPECT_TRUE(up["fault"].is_null());
  EXPECT_TRUE(up["detail"].is_null());
  EXPECT_EQ(up["version"], "1");
  EXPECT_EQ(up["keys"], 2);
  EXPECT_EQ(up["used_bytes"], 4711);
  EXPECT_TRUE(up["max_bytes"].is_null());
  EXPECT_TRUE(up["policy"].is_null());
  EXPECT_EQ(up["persists"], false);
  EXPECT_EQ(up["missing"], 0);
  EXPECT_EQ(up["advice"], Json::array());

  server_->fail(fleet::Fault::timeout);
  const Json down = json_of(look_at_servers(tier_).at(0));
  EXPECT_EQ(down["answers"], false);
  EXPECT_EQ(down["fault"], "timeout");
  EXPECT_EQ(down["detail"], "as the test wants");
  EXPECT_TRUE(down["round_trip_ms"].is_null());
  EXPECT_TRUE(down["missing"].is_null());
}

TEST_F(AnyBackend, PruneTakesWhatNobodyCanUse) {
  put(some_entry(1), *key_);
  put(some_entry(2), testing::signing_key(2));
  put(some_entry(3), *key_);
  server_->spoil(some_entry(3).key);
  server_->leave_other_version("of another version");
  const Pruned dry = prune_tier(tier_, {.toolchain = "", .all = false, .dry_run = true});
  EXPECT_EQ(dry.scanned, 7u);
  EXPECT_EQ(dry.unusable, 2u);
  EXPECT_EQ(dry.rows, 1u);
  EXPECT_EQ(dry.others, 1u);
  EXPECT_EQ(dry.removed, 0u);
  const Pruned done = prune_tier(tier_, {});
  EXPECT_FALSE(done.fault) << done.fault.text;
  EXPECT_EQ(done.removed, 4u);
  EXPECT_EQ(prune_tier(tier_, {}).kept, 2u) << "the entry that is believed, and its row";
  EXPECT_EQ(prune_tier(tier_, {.toolchain = some_entry(1).key.toolchain.hex()}).chosen, 1u);
  prune_tier(tier_, {.toolchain = "", .all = true});
  EXPECT_EQ(prune_tier(tier_, {}).scanned, 0u);
  server_->fail(fleet::Fault::closed);
  EXPECT_TRUE(prune_tier(tier_, {}).fault.down);
}

/// The records of a blob in a store that cuts it in parts of this size.
struct StoredBlobRecords {
  StoredBlobRecords(const std::string& content, std::uint64_t part_bytes) {
    cache::each_record({"s", "v1", "k"}, content, part_bytes,
                       [&](cache::Record&& record) { records.emplace(record.key, std::move(record)); });
  }
  Pushed push(fleet::Tier& tier) const {
    std::vector<Key> keys;
    for (const auto& [key, record] : records) keys.push_back(key);
    return push_entries(
        tier, keys, [&](const Key& key) -> cache::Peeked<cache::Record> { return {records.at(key)}; }, true);
  }
  std::map<Key, cache::Record> records;
};

TEST_F(AnyBackend, ABlobThatTheTierHasInOtherPartsIsPushedAgain) {
  const std::string content = testing::noise(runtime::kTierPart + 5);
  cache::each_record({"s", "v1", "k"}, content, runtime::kTierPart / 2, [&](cache::Record&& record) {
    put(runtime::envelope_of(std::move(record), {"", "blobs of s", {}}), *key_);
  });
  const StoredBlobRecords here(content, cache::kBlobPart);
  ASSERT_EQ(here.records.size(), 1u);
  EXPECT_EQ(here.push(tier_).pushed, 3u) << "two parts, and the entry that names them";
  EXPECT_EQ(here.push(tier_).present, 3u);
}

TEST_F(AnyBackend, ABlobOfSmallPartsIsPushedWhole) {
  const StoredBlobRecords here(testing::noise(1000), 400);
  ASSERT_EQ(here.records.size(), 4u);
  const Pushed pushed = here.push(tier_);
  EXPECT_EQ(pushed.pushed, 1u);
  EXPECT_TRUE(pushed.covers_all());
  const cache::BlobKey head = cache::blob_key({"s", "v1", "k"});
  const auto there = tier_.fetch({{head.key, head.text, fleet::Asked::Text::whole}}, base::Deadline::never());
  ASSERT_TRUE(there.front().entry);
  EXPECT_EQ(cache::decode_blob(there.front().entry->facts).parts, 0u) << "the entry has all of the content";
  EXPECT_EQ(here.push(tier_).present, 1u);
}

TEST_F(AnyBackend, AHeadIsNotPushedWithoutItsParts) {
  const StoredBlobRecords here(testing::noise(runtime::kTierPart + 5), cache::kBlobPart);
  server_->refuse_larger_than(1 << 20);
  const Pushed refused = here.push(tier_);
  EXPECT_EQ(refused.pushed, 1u) << "the second part is small";
  EXPECT_EQ(refused.failed, 2u) << "the first part, and the head";
  EXPECT_FALSE(refused.complete());
  server_->refuse_larger_than(std::string::npos);
  const Pushed done = here.push(tier_);
  EXPECT_EQ(done.pushed, 2u);
  EXPECT_EQ(done.present, 1u);
  EXPECT_TRUE(done.covers_all());
}

}  // namespace
}  // namespace kiln::cli

// The grammar of blobs: keys, facts, compression and parts, and what hostile bytes do.
#include "cache/blob/blob.hpp"

#include <gtest/gtest.h>

#include <random>

#include "base/wire.hpp"
#include "cache/fixture.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

std::string noise(std::size_t size) {
  std::string out(size, '\0');
  std::mt19937_64 random(7);
  for (std::size_t i = 0; i + 8 <= size; i += 8) {
    const std::uint64_t next = random();
    std::memcpy(out.data() + i, &next, 8);
  }
  return out;
}

std::vector<Record> records_of(const BlobName& name, std::string_view content) {
  std::vector<Record> out;
  each_record(name, content, kBlobPart, [&](Record&& record) { out.push_back(std::move(record)); });
  return out;
}

TEST(Blob, ARecordSaysWhatItIsAndKeepsTheBytes) {
  const BlobName name{"triton", "triton 3.6", std::string("a\0b\n", 4)};
  for (const std::string& content :
       {std::string(), std::string("x"), std::string(100'000, 'a'), noise(100'000)}) {
    const auto records = records_of(name, content);
    ASSERT_EQ(records.size(), 1u);
    Record record = records[0];
    EXPECT_TRUE(is_blob(record.facts) && is_blob_text(record.key_text));
    EXPECT_EQ(record.key, blob_key(name).key);
    const BlobFacts facts = decode_blob(record.facts);
    EXPECT_EQ(facts.space + facts.compatibility + facts.key, name.space + name.compatibility + name.key);
    EXPECT_EQ(facts.size, content.size());
    EXPECT_EQ(key_of(facts).text, record.key_text);
    EXPECT_EQ(key_of(facts).key, record.key);
    EXPECT_TRUE(piece_of(facts, {{}, record.image}) == content);
  }
}

TEST(Blob, WhatDoesNotCompressIsKeptPlain) {
  const auto compressed = [](const std::string& content) {
    return decode_blob(records_of({"s", "", "k"}, content)[0].facts).compressed;
  };
  EXPECT_TRUE(compressed(std::string(100'000, 'a')));
  EXPECT_FALSE(compressed(noise(100'000)));
  EXPECT_FALSE(compressed(noise(2'000'000))) << "the samples say so";
  EXPECT_FALSE(compressed("aaaa")) << "too small to pay";
}

TEST(Blob, EachTextIsPartOfTheKey) {
  const Key key = blob_key({"s", "c", "k"}).key;
  EXPECT_NE(blob_key({"t", "c", "k"}).key, key);
  EXPECT_NE(blob_key({"s", "d", "k"}).key, key);
  EXPECT_NE(blob_key({"s", "c", "l"}).key, key);
  EXPECT_NE(blob_key({"s", "c2:k", ""}).text, blob_key({"s", "c", "2:k"}).text)
      << "lengths come before values";
}

TEST(Blob, TheBlobsOfASpaceAreARangeOfKeys) {
  const KeyRange range = keys_of_space("triton");
  for (int i = 0; i < 100; ++i) {
    const Key in = blob_key({"triton", std::to_string(i % 3), std::to_string(i)}).key;
    EXPECT_TRUE(!(in < range.first) && !(range.last < in));
    const Key out = blob_key({"inductor", "", std::to_string(i)}).key;
    EXPECT_TRUE(out < range.first || range.last < out);
  }
}

TEST(Blob, ALargeBlobHasPartsThatNameItsContent) {
  const std::string content = noise(kBlobPart + 1000);
  const BlobName name{"s", "c", "k"};
  auto records = records_of(name, content);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[2].key, blob_key(name).key) << "the record that names the parts is the last";
  const BlobFacts facts = decode_blob(records[2].facts);
  EXPECT_EQ(facts.parts, 2u);
  std::string joined;
  for (std::uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(records[i].key, blob_part_key(facts, i).key);
    const BlobFacts part = decode_blob(records[i].facts);
    EXPECT_EQ(key_of(part).text, records[i].key_text);
    EXPECT_EQ(key_of(part).key, records[i].key);
    joined += piece_of(part, {{}, records[i].image}).value_or(Bytes{}).view;
  }
  EXPECT_TRUE(joined == content);
  const KeyRange range = keys_of_blob(facts.parts ? records[2].key : Key());
  for (const Record& record : records) EXPECT_TRUE(!(record.key < range.first) && !(range.last < record.key));
  const std::string other = noise(kBlobPart + 2000);
  EXPECT_NE(records_of(name, other)[0].key, records[0].key) << "a reader never mixes two contents";
}

TEST(Blob, TextsThatNoBlobCanHaveAreRefusedByName) {
  const auto message = [](const BlobName& name) {
    try {
      check_blob_name(name);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message({"a_z-0.9", "", ""}), "");
  for (const char* space : {"", "A", "a b", "a/b", "\xff"})
    EXPECT_NE(message({space, "", ""}).find("must have 1 to 64 characters of a-z 0-9 _ - ."),
              std::string::npos);
  EXPECT_NE(message({std::string(65, 'a'), "", ""}), "");
  EXPECT_NE(message({"s", "", std::string(kLongestBlobText + 1, 'k')}).find("65537 bytes; at most 65536"),
            std::string::npos);
}

TEST(Blob, HostileFactsAreMalformed) {
  const Record record = records_of({"s", "c", "k"}, "content")[0];
  for (std::size_t size = 0; size < record.facts.size(); ++size)
    EXPECT_THROW(decode_blob(std::string_view(record.facts).substr(0, size)), base::Malformed);
  EXPECT_THROW(decode_blob(record.facts + "x"), base::Malformed);
  EXPECT_THROW(decode_blob(test::record_of(1).facts), base::Malformed);
  BlobFacts facts = decode_blob(record.facts);
  facts.key = "other";
  EXPECT_NE(key_of(facts).text, record.key_text);
  EXPECT_FALSE(piece_of(facts, {{}, "conten"})) << "another size";
  facts.compressed = true;
  EXPECT_FALSE(piece_of(facts, {{}, "content"})) << "no frame";
  facts.piece = std::uint64_t{1} << 60;
  EXPECT_FALSE(piece_of(facts, {{}, "content"})) << "nothing is allocated for a size that no part has";
}

class Trim : public test::StoreFixture {};

TEST_F(Trim, TheLeastRecentlyUsedOfTheRangeGoFirst) {
  const auto store = open();
  for (std::uint32_t i = 0; i < 20; ++i) ASSERT_EQ(store->put(test::record_of(i)).put, Put::stored);
  // Each entry has two pieces, in pages of 4 KiB.
  const KeyRange middle{test::key_of(5), test::key_of(14)};
  EXPECT_EQ(store->trim(middle, std::uint64_t{10} * 2 * 4096, test::soon()), 0u) << "they fit";
  EXPECT_EQ(store->trim(middle, std::uint64_t{4} * 2 * 4096, test::soon()), 6u);
  const auto there = [&](std::uint32_t i) {
    const Record record = test::record_of(i);
    return store->get(record.key, record.key_text, test::soon()).record.has_value();
  };
  for (std::uint32_t i = 0; i < 20; ++i) EXPECT_EQ(there(i), i < 5 || i > 10) << i;
  EXPECT_EQ(store->trim({test::key_of(12), test::key_of(12)}, 0, test::soon()), 1u);
  EXPECT_FALSE(there(12));
  EXPECT_EQ(store->trim(kAllKeys, 0, test::soon()), 13u);
  EXPECT_EQ(store->stats().entries, 0u);
  EXPECT_TRUE(store->verify().damaged.empty());
}

TEST_F(Trim, AReadOnlyStoreIsRefused) {
  open();
  EXPECT_THROW(open_read_only()->trim(kAllKeys, 0, test::soon()), Error);
}

TEST_F(Trim, KeysThatAreRemovedGoTogetherAndOthersStay) {
  const auto store = open();
  std::vector<Key> odd;
  std::vector<Record> records;
  for (std::uint32_t i = 0; i < 1600; ++i) {
    records.push_back(test::record_of(i, 100));
    if (i % 2) odd.push_back(test::key_of(i));
    if (records.size() < 200) continue;
    for (const PutResult& put : store->put_many(records)) ASSERT_EQ(put.put, Put::stored);
    records.clear();
  }
  odd.push_back(odd.front());
  odd.push_back(test::key_of(7000));
  EXPECT_EQ(store->remove(odd, test::soon()), 800u) << "one comes twice, and one is not there";
  EXPECT_EQ(store->remove(odd, test::soon()), 0u);
  EXPECT_EQ(store->remove({}, test::soon()), 0u);
  std::uint64_t even = 0;
  store->list([&](const Entry& entry) { even += std::find(odd.begin(), odd.end(), entry.key) == odd.end(); });
  EXPECT_EQ(even, 800u);
  EXPECT_EQ(store->stats().entries, 800u);
  EXPECT_TRUE(store->verify().damaged.empty());
  EXPECT_THROW(open_read_only()->remove(odd, test::soon()), Error);
}

TEST_F(Trim, APutSaysWhatItReplaced) {
  const auto store = open();
  Record record = test::record_of(1);
  const std::string facts = record.facts;
  EXPECT_EQ(store->put(record).replaced, "");
  record.facts = "others";
  const PutResult replaced = store->put(record, store->put_wait(), Existing::replaced);
  EXPECT_EQ(replaced.put, Put::stored);
  EXPECT_EQ(replaced.replaced, facts);
  EXPECT_EQ(store->put(record, store->put_wait(), Existing::replaced).replaced, "");
}

}  // namespace
}  // namespace kiln::cache

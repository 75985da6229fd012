// The record grammar: a damaged record is no record, and never reads as another record.
#include "cache/record/record.hpp"

#include <gtest/gtest.h>

#include "base/hash.hpp"

namespace kiln::cache {
namespace {

constexpr Key kKey{{{1, 2, 3}}, {{4, 5, 6}}};

Record small() {
  return {kKey, "facts: regs=32", "template=rms_norm H=4096",
          std::string("\x7f"
                      "ELF\0image",
                      10)};
}

bool same(const Record& a, const Record& b) {
  return a.key == b.key && a.facts == b.facts && a.key_text == b.key_text && a.image == b.image;
}

TEST(Record, RoundTrips) {
  for (const Record& record : {small(), Record{kKey, "", "", ""}, Record{kKey, "", "k", ""},
                               Record{kKey, "f", "", std::string(2 << 20, 'x')}}) {
    const auto back = decode(kKey, encode(record));
    ASSERT_TRUE(back);
    EXPECT_TRUE(same(*back, record));
  }
}

TEST(Record, IsNoneAtEveryOtherLength) {
  const std::string bytes = encode(small());
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(decode(kKey, std::string_view(bytes).substr(0, size))) << size;
  EXPECT_FALSE(decode(kKey, bytes + '\0'));
  EXPECT_FALSE(decode(kKey, bytes + bytes));
}

TEST(Record, IsNoneWithAnyBitFlipped) {
  const std::string bytes = encode(small());
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    EXPECT_FALSE(decode(kKey, damaged)) << "bit " << bit;
  }
}

TEST(Record, IsNoneWithAnyByteReplaced) {
  const std::string bytes = encode(small());
  for (std::size_t at = 0; at < bytes.size(); ++at)
    for (const char value : {'\0', '\x7f', '\xff'}) {
      std::string damaged = bytes;
      damaged[at] = value;
      EXPECT_EQ(decode(kKey, damaged).has_value(), damaged == bytes) << at;
    }
}

TEST(Record, HeadIsReadFromItsFirstBytesAlone) {
  const std::string bytes = encode(small());
  std::size_t needed = 0;
  EXPECT_FALSE(decode_head(std::string_view(bytes).substr(0, 39), &needed));
  EXPECT_EQ(needed, 0u);
  EXPECT_FALSE(decode_head(std::string_view(bytes).substr(0, 40), &needed));
  EXPECT_EQ(needed, 40 + small().facts.size());
  for (std::size_t size = 0; size <= bytes.size(); ++size)
    EXPECT_EQ(decode_head(std::string_view(bytes).substr(0, size)).has_value(), size >= needed) << size;
  const auto head = decode_head(std::string_view(bytes).substr(0, needed));
  ASSERT_TRUE(head);
  EXPECT_EQ(head->facts, small().facts);
  EXPECT_EQ(head->key_text_size, small().key_text.size());
  EXPECT_EQ(head->image_size, small().image.size());
}

TEST(Record, HeadIsNoneWithAnyOfItsBitsFlipped) {
  const std::string bytes = encode(small());
  const std::size_t size = extent_of(bytes)->head;
  for (std::size_t bit = 0; bit < 8 * size; ++bit) {
    if (bit / 8 >= 32 && bit / 8 < 40) continue;  // the body's checksum
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    EXPECT_FALSE(decode_head(damaged)) << "bit " << bit;
  }
}

TEST(Record, HugeSizesAreNoRecord) {
  for (const std::size_t at : {8u, 12u, 16u}) {
    std::string bytes = encode(small());
    bytes.replace(at, at == 16 ? 8 : 4, at == 16 ? 8 : 4, '\xff');
    EXPECT_FALSE(decode(kKey, bytes));
    EXPECT_FALSE(decode_head(bytes));
  }
}

TEST(Record, ExtentIsWhatTheFixedPartSays) {
  const std::string bytes = encode(small());
  const auto extent = extent_of(std::string_view(bytes).substr(0, 40));
  ASSERT_TRUE(extent);
  EXPECT_EQ(extent->total, bytes.size());
  EXPECT_EQ(extent->head, 40 + small().facts.size());
  EXPECT_FALSE(extent_of(std::string_view(bytes).substr(0, 39)));
}

TEST(Record, GrammarOnDiskIsVersionOne) {
  // A change of these bytes needs a new magic and a new schema directory.
  const std::string bytes = encode({kKey, "f", "k", "i"});
  EXPECT_EQ(bytes.substr(0, 24), std::string("kilnrec1\1\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0", 24));
  EXPECT_EQ(bytes.substr(40), "fki");
  std::uint64_t body = 0;
  std::memcpy(&body, bytes.data() + 32, 8);
  EXPECT_EQ(body, base::hash64("ki"));
}

}  // namespace
}  // namespace kiln::cache

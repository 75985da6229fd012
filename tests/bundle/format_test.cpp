// Written entries are read back, and equal entries give equal bytes.
#include "tests/bundle/fixture.hpp"

using namespace kiln;
using namespace kiln::bundle;
using namespace kiln::trust;
using namespace kiln::bundle::test;

TEST(Bundle, ReadsBackWhatWasWritten) {
  const std::vector<cache::Record> entries{entry_of(1), entry_of(2, 0), entry_of(7, 3 << 20),
                                           entry_of(200, 1)};
  Summary written;
  const std::string file = bundle_of(entries, &written);
  Reader reader(from(file, 777), {});
  for (const cache::Record& entry : entries) {
    const auto got = reader.next();
    ASSERT_TRUE(got);
    EXPECT_TRUE(same(*got, entry));
  }
  EXPECT_FALSE(reader.next());
  EXPECT_FALSE(reader.next()) << "the end stays the end";
  EXPECT_EQ(reader.summary().entries, entries.size());
  EXPECT_EQ(reader.summary().digest, written.digest);
  EXPECT_EQ(reader.summary().content_bytes, written.content_bytes);
}

TEST(Bundle, OfNothingIsABundle) { EXPECT_TRUE(read_all(bundle_of({})).empty()); }

TEST(Bundle, IsTheSameBytesEachTime) {
  std::vector<cache::Record> entries;
  for (std::uint8_t number = 0; number < 100; ++number) entries.push_back(entry_of(number, 5000));
  EXPECT_EQ(bundle_of(entries), bundle_of(entries));
}

TEST(Bundle, HoldsWhatCompressesTooWellForOneBuffer) {
  // zstd holds back output when the caller's buffer is full. The stream must not be taken for truncated then.
  cache::Record entry = entry_of(1);
  entry.image.assign(8 << 20, 'x');
  const auto got = read_all(bundle_of({entry}), {}, 1 << 20);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_TRUE(same(got[0], entry));
}

TEST(Bundle, WriterWantsAscendingKeys) {
  Writer writer([](std::string_view) {});
  writer.add(entry_of(5));
  EXPECT_THROW(writer.add(entry_of(5)), Error);
  EXPECT_THROW(writer.add(entry_of(4)), Error);
}

TEST(Bundle, WriterWritesNothingThatAReaderRefuses) {
  Writer writer([](std::string_view) {});
  cache::Record entry = entry_of(1);
  entry.facts.resize((1 << 20) + 1);
  EXPECT_THROW(writer.add(entry), Error);
}

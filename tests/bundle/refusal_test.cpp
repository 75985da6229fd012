// Every kind of bundle that must be refused.
#include <sys/resource.h>

#include "tests/bundle/fixture.hpp"

using namespace kiln;
using namespace kiln::bundle;
using namespace kiln::trust;
using namespace kiln::bundle::test;

#define EXPECT_REFUSED(file, why) EXPECT_NE(refusal_of(file).find(why), std::string::npos) << refusal_of(file)

namespace {

Crafted two() {
  Crafted out;
  out.entry(entry_of(1)).entry(entry_of(2));
  return out;
}

long peak_kib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

}  // namespace

TEST(BundleRefusal, CraftedOnesAreReadWhenTheyAreRight) { EXPECT_EQ(refusal_of(two().end().file()), ""); }

TEST(BundleRefusal, WhatIsNoBundle) {
  EXPECT_REFUSED("", "no kiln bundle");
  EXPECT_REFUSED("kilnbnd", "no kiln bundle");
  EXPECT_REFUSED(std::string(100, '\0'), "no kiln bundle");
  EXPECT_REFUSED("kilnbndl\1\0", "middle of its header");
}

TEST(BundleRefusal, AnotherVersionIsNamedAndIsNoDamage) {
  const std::string said = refusal_of(Crafted::header(2) + Crafted::compressed("x"));
  EXPECT_NE(said.find("error: it is a bundle of version 2"), std::string::npos) << said;
}

TEST(BundleRefusal, EveryTruncation) {
  const std::string file = two().end().file();
  for (std::size_t size = 0; size < file.size(); ++size)
    EXPECT_NE(refusal_of(file.substr(0, size)), "") << size << " of " << file.size();
}

TEST(BundleRefusal, NoEntryIsHandedOutThatIsNotWhatWasWritten) {
  const std::string content = two().end().content();
  const std::vector<cache::Record> written = read_all(two().end().file());
  for (std::size_t bit = 0; bit < 8 * content.size(); ++bit) {
    std::string damaged = content;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    ContentReader reader(from(damaged, 4096), {});
    std::size_t read = 0;
    try {
      for (; const auto entry = reader.next(); ++read)
        EXPECT_TRUE(read < written.size() && same(*entry, written[read])) << bit;
      ADD_FAILURE() << "bit " << bit << " was not noticed";
    } catch (const Refused&) {
    }
  }
}

TEST(BundleRefusal, EveryFlippedBit) {
  const std::string file = two().end().file();
  for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
    std::string damaged = file;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    if (refusal_of(damaged).empty()) {
      // zstd has header bits without a meaning for this frame. The entries must be equal then.
      const auto got = read_all(damaged), expected = read_all(file);
      ASSERT_EQ(got.size(), expected.size()) << bit;
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same(got[i], expected[i])) << bit;
    }
  }
}

TEST(BundleRefusal, WhatFollowsTheEnd) {
  EXPECT_REFUSED(two().end().file() + "x", "follows the end of its compressed content");
  EXPECT_REFUSED(two().end().raw("x").file(), "follows its end mark");
  const std::string file = two().end().file();
  EXPECT_REFUSED(file + file.substr(kHeaderBytes), "follows the end of its compressed content");
}

TEST(BundleRefusal, ContentWithoutAnEnd) {
  EXPECT_REFUSED(two().file(), "without an end mark");
  EXPECT_REFUSED(Crafted::header() + Crafted::compressed(""), "without an end mark");
}

TEST(BundleRefusal, RepeatedAndUnsortedKeys) {
  EXPECT_REFUSED(Crafted().entry(entry_of(1)).entry(entry_of(1)).end().file(), "repeated or out of order");
  EXPECT_REFUSED(Crafted().entry(entry_of(2)).entry(entry_of(1)).end().file(), "repeated or out of order");
}

TEST(BundleRefusal, AWrongCountOrDigest) {
  EXPECT_REFUSED(two().end(3).file(), "says that it has 3 entries, and has 2");
  std::string content = two().end().content();
  content.back() = static_cast<char>(content.back() ^ 1);
  EXPECT_REFUSED(Crafted::header() + Crafted::compressed(content), "digest");
}

TEST(BundleRefusal, AnUnknownMark) {
  EXPECT_REFUSED(Crafted().entry(entry_of(1)).raw("\7").end().file(), "neither an entry nor the end");
}

TEST(BundleRefusal, EntriesThatAreTooLong) {
  EXPECT_REFUSED(Crafted().head(key_of(1), (1 << 20) + 1, 0, 0).end().file(), "of facts");
  EXPECT_REFUSED(Crafted().head(key_of(1), 0, (16 << 20) + 1, 0).end().file(), "of key text");
  EXPECT_REFUSED(Crafted().head(key_of(1), 0, 0, (std::uint64_t{256} << 20) + 1).end().file(), "of image");
  EXPECT_REFUSED(Crafted().head(key_of(1), 0xffffffff, 0xffffffff, ~std::uint64_t{0}).end().file(),
                 "of facts");
}

TEST(BundleRefusal, AStatedSizeTakesNoMemoryByItself) {
  const long before = peak_kib();
  EXPECT_REFUSED(Crafted().head(key_of(1), 0, 0, std::uint64_t{256} << 20).raw("few bytes").file(),
                 "middle of an entry");
  EXPECT_LT(peak_kib() - before, 32 << 10);
}

TEST(BundleRefusal, ABombIsStoppedAtItsLimitAndTakesNoMemory) {
  Limits limits;
  limits.content = 64 << 20;
  Crafted bomb;
  bomb.head(key_of(1), 0, 0, std::uint64_t{200} << 20);
  const std::string file =
      Crafted::header() + Crafted::compressed(bomb.content() + std::string(std::size_t{200} << 20, '\0'));
  EXPECT_LT(file.size(), 64u << 10) << "as a bomb is";
  const std::string said = refusal_of(file, limits);
  EXPECT_NE(said.find("error: it has more than 67108864 bytes when decompressed"), std::string::npos) << said;
}

TEST(BundleRefusal, AWindowThatIsTooLarge) {
  const std::string content = two().end().content();
  EXPECT_EQ(refusal_of(Crafted::header() + Crafted::compressed(content, 27)), "");
  EXPECT_NE(refusal_of(Crafted::header() + Crafted::compressed(content, 28)), "");
}

TEST(BundleRefusal, ASkippableFrame) {
  base::Writer frame;
  frame.number(std::uint32_t{0x184D2A50}).number(std::uint32_t{4}).str() += "skip";
  EXPECT_NE(refusal_of(Crafted::header() + frame.str() + two().end().file().substr(kHeaderBytes)), "");
}

// The second pass over a file returns exactly the bytes that the first pass saw.
#include "cache/bundle/chunks.hpp"
#include "tests/bundle/fixture.hpp"

using namespace kiln;
using namespace kiln::bundle;
using namespace kiln::trust;
using namespace kiln::bundle::test;

namespace {

std::string drain(SecondPass& pass) {
  std::string out;
  char buffer[70'000];
  while (const std::size_t got = pass.read(buffer, sizeof buffer)) out.append(buffer, got);
  return out;
}

std::string some_bytes(std::size_t size) { return entry_of(3, size).image; }

}  // namespace

TEST(BundleChunks, TheSameFileIsHandedOutWhole) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, kPieceBytes, 2 * kPieceBytes + 17}) {
    const std::string bytes = some_bytes(size);
    FirstPass seen = first_pass(from(bytes, 50'000), size);
    EXPECT_EQ(seen.digest, blake2b<64>(bytes));
    SecondPass second(from(bytes, 33'333), std::move(seen));
    EXPECT_EQ(drain(second), bytes);
  }
}

TEST(BundleChunks, NoByteOfAChangedPieceIsHandedOut) {
  const std::string bytes = some_bytes(2 * kPieceBytes + 17);
  for (const std::size_t at : {std::size_t{0}, kPieceBytes - 1, kPieceBytes, bytes.size() - 1}) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    SecondPass second(from(changed), first_pass(from(bytes), bytes.size()));
    std::string got;
    char buffer[1000];
    EXPECT_THROW(for (;;) got.append(buffer, second.read(buffer, sizeof buffer)), Refused);
    EXPECT_EQ(got, bytes.substr(0, at / kPieceBytes * kPieceBytes));
  }
}

TEST(BundleChunks, AFileThatGrewOrShrankIsRefused) {
  const std::string bytes = some_bytes(kPieceBytes);
  for (const std::string& other : {bytes + "x", bytes.substr(1), std::string()}) {
    SecondPass second(from(other), first_pass(from(bytes), bytes.size()));
    EXPECT_THROW(drain(second), Refused);
  }
}

TEST(BundleChunks, ALargerFileThanAllowedIsNotReadToItsEnd) {
  EXPECT_THROW(first_pass(from(some_bytes(2 * kPieceBytes)), kPieceBytes), Error);
}

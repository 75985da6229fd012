#include "cache/fleet/toolchain_row.hpp"

#include <gtest/gtest.h>

#include "tests/fleet/trust_fixture.hpp"

using namespace kiln;
using namespace kiln::fleet;
using namespace kiln::testing;

namespace {

ToolchainRow some_row(std::uint8_t toolchain, const char* version, std::int64_t created) {
  return {some_entry(1, toolchain).key,           created, 12345, true, version,
          "NVRTC of " + std::to_string(toolchain)};
}

class Row : public ::testing::Test {
 protected:
  std::string verdict_of(std::string_view bytes, const Key& asked) const {
    const auto opened = open_row(bytes, asked, trusted_);
    const auto* reason = std::get_if<Rejection>(&opened);
    return reason ? name_of(*reason) : "accepted";
  }
  const trust::SigningKey key_ = signing_key(1), stranger_ = signing_key(2);
  const std::vector<trust::PublicKey> trusted_{key_.public_key()};
};

}  // namespace

TEST_F(Row, IsReadAsItWasSealed) {
  const ToolchainRow row = some_row(3, "13.0", 1'700'000'000);
  const auto opened = open_row(seal_row(row, &key_), row.key, trusted_);
  const auto* out = std::get_if<ToolchainRow>(&opened);
  ASSERT_NE(out, nullptr);
  EXPECT_EQ(out->key, row.key);
  EXPECT_EQ(out->created_s, row.created_s);
  EXPECT_EQ(out->envelope_bytes, row.envelope_bytes);
  EXPECT_EQ(out->serves_others, row.serves_others);
  EXPECT_EQ(out->compiler_version, row.compiler_version);
  EXPECT_EQ(out->toolchain, row.toolchain);
}

TEST_F(Row, NoChangedBitAndNoTruncationIsAccepted) {
  const ToolchainRow row = some_row(3, "13.0", 1);
  const std::string sealed = seal_row(row, &key_);
  for (std::size_t at = 0; at < sealed.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = sealed;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      ASSERT_NE(verdict_of(changed, row.key), "accepted") << at << ' ' << bit;
    }
    ASSERT_EQ(verdict_of(sealed.substr(0, at), row.key), "malformed");
  }
  EXPECT_EQ(verdict_of(sealed + 'x', row.key), "malformed");
  EXPECT_EQ(verdict_of(std::string(kMostRow + 1, 'x'), row.key), "too_long");
  EXPECT_EQ(verdict_of(seal_row(row, nullptr), row.key), "unsigned");
  EXPECT_EQ(verdict_of(seal_row(row, &stranger_), row.key), "unknown_key");
}

TEST_F(Row, OfAnotherFieldOrHashIsAnotherKeys) {
  const std::string sealed = seal_row(some_row(3, "13.0", 1), &key_);
  EXPECT_EQ(verdict_of(sealed, some_entry(1, 4).key), "other_key");
  EXPECT_EQ(verdict_of(sealed, some_entry(2, 3).key), "other_key");
}

TEST_F(Row, IsNoEnvelopeNorTheOtherWayRound) {
  const fleet::PublishedRecord entry = some_entry();
  EXPECT_EQ(verdict_of(seal_envelope(entry, &key_), entry.key), "malformed");
  EXPECT_EQ(verdict(seal_row(some_row(1, "13.0", 1), &key_), asked_for(entry), trusted_), "malformed");
}

TEST_F(Row, OfAHashComeInTheOrderOfTheirUseAndTheBadOnesAreCounted) {
  std::vector<std::pair<std::string, std::string>> fields;
  const auto add = [&](const ToolchainRow& row, const trust::SigningKey* signer) {
    fields.emplace_back(row.key.toolchain.hex(), seal_row(row, signer));
  };
  add(some_row(1, "12.9", 50), &key_);
  add(some_row(2, "13.0", 10), &key_);
  add(some_row(3, "13.0", 20), &key_);
  add(some_row(4, "9.2", 99), &key_);
  add(some_row(5, "none", 99), &key_);
  add(some_row(6, "13.1", 99), &stranger_);
  add(some_row(7, "13.1", 99), nullptr);
  fields.emplace_back(some_entry(1, 8).key.toolchain.hex(), fields[0].second);  // replayed with another name
  fields.emplace_back("no hex", fields[0].second);
  RejectionCounts rejected;
  const auto rows = open_rows(fields, some_entry().key.specialisation, trusted_, rejected);
  std::string order;
  for (const ToolchainRow& row : rows) order += std::to_string(row.key.toolchain.bytes[0]);
  EXPECT_EQ(order, "32145");
  EXPECT_EQ(rejected.of(Rejection::unknown_key), 1u);
  EXPECT_EQ(rejected.of(Rejection::unsigned_), 1u);
  EXPECT_EQ(rejected.of(Rejection::other_key), 1u);
  EXPECT_EQ(rejected.of(Rejection::malformed), 1u);
  EXPECT_EQ(rejected.all(), 4u);
}

TEST_F(Row, AHashFullOfGarbageCostsNoMoreThanItsFirstRows) {
  std::vector<std::pair<std::string, std::string>> fields(100'000, {std::string(32, '0'), "garbage"});
  RejectionCounts rejected;
  EXPECT_TRUE(open_rows(fields, Digest{}, trusted_, rejected).empty());
  EXPECT_EQ(rejected.of(Rejection::malformed), kMostRows);
  EXPECT_EQ(rejected.of(Rejection::too_long), 1u);
}

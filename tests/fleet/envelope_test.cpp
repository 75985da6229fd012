#include "cache/fleet/envelope.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "cache/compression/zstd.hpp"
#include "kiln/error.hpp"
#include "tests/fleet/trust_fixture.hpp"

using namespace kiln;
using namespace kiln::fleet;
using namespace kiln::testing;

namespace {

/// Bytes that operator new was asked for since a test set this to 0.
std::atomic<std::size_t> g_allocated{0};

class Envelope : public ::testing::Test {
 protected:
  std::string verdict_of(std::string_view bytes) const { return verdict(bytes, asked_for(entry_), trusted_); }

  const trust::SigningKey key_ = signing_key(1), stranger_ = signing_key(2);
  const std::vector<trust::PublicKey> trusted_{key_.public_key()};
  const fleet::PublishedRecord entry_ = some_entry();
  const EnvelopePlaces places_{entry_};
  const std::string sealed_ = seal_envelope(entry_, &key_);
};

}  // namespace

// Not inlined: otherwise the compiler sees that memory of malloc is deleted, and warns.
[[gnu::noinline]] void* operator new(std::size_t size) {
  g_allocated += size;
  if (void* out = std::malloc(size)) return out;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  g_allocated += size;
  return std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* at) noexcept { std::free(at); }
[[gnu::noinline]] void operator delete(void* at, std::size_t) noexcept { std::free(at); }

TEST_F(Envelope, IsReadAsItWasSealed) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{50'000}, std::size_t{3'000'000}}) {
    fleet::PublishedRecord entry = some_entry(1, 1, size);
    entry.facts.assign(size / 10, 'f');
    const auto opened = open_envelope(seal_envelope(entry, &key_), asked_for(entry), trusted_);
    const auto* out = std::get_if<fleet::PublishedRecord>(&opened);
    ASSERT_NE(out, nullptr) << size;
    EXPECT_EQ(out->key, entry.key);
    EXPECT_EQ(out->key_text, entry.key_text);
    EXPECT_EQ(out->facts, entry.facts);
    EXPECT_EQ(out->image, entry.image);
    EXPECT_EQ(out->arch, entry.arch);
    EXPECT_EQ(out->toolchain, entry.toolchain);
    EXPECT_EQ(out->signed_by, key_.public_key().id);
  }
}

TEST_F(Envelope, HasTheGrammarOfItsHeader) {
  EXPECT_EQ(sealed_.substr(0, 8), "kilnenv1");
  EXPECT_EQ(sealed_.substr(8, 4), std::string("\1\0\0\0", 4));
  EXPECT_EQ(sealed_.substr(EnvelopePlaces::key, 16), base::view(entry_.key.specialisation));
  EXPECT_EQ(sealed_.substr(EnvelopePlaces::key_text, entry_.key_text.size()), entry_.key_text);
  EXPECT_EQ(sealed_.substr(places_.signed_by, 8), base::view(key_.public_key().id));
  EXPECT_EQ(sealed_.substr(places_.payload, 4), "\x28\xb5\x2f\xfd");
  EXPECT_EQ(seal_envelope(entry_, &key_), sealed_) << "the same entry gives the same bytes";
}

TEST_F(Envelope, IsRejectedForWhatItIs) {
  std::string changed = sealed_;
  changed[0] = 'K';
  EXPECT_EQ(verdict_of(changed), "malformed");
  changed = sealed_, changed[EnvelopePlaces::schema] = 2;
  EXPECT_EQ(verdict_of(changed), "other_schema");
  changed = sealed_, changed[EnvelopePlaces::key_text] = 'K';
  EXPECT_EQ(verdict_of(changed), "other_key_text");
  changed = sealed_, changed[places_.signature] = static_cast<char>(changed[places_.signature] ^ 1);
  EXPECT_EQ(verdict_of(changed), "bad_signature");
  changed = sealed_, changed[places_.digest - 1] = '9';  // the toolchain's readable name is signed, too
  EXPECT_EQ(verdict_of(changed), "bad_signature");
  changed = sealed_, changed.back() = static_cast<char>(changed.back() ^ 1);
  EXPECT_EQ(verdict_of(changed), "bad_digest");
  EXPECT_EQ(verdict_of(sealed_ + 'x'), "malformed");
  EXPECT_EQ(verdict_of(sealed_.substr(0, sealed_.size() - 1)), "malformed");
  EXPECT_EQ(verdict_of(""), "malformed");
  EXPECT_EQ(verdict_of(std::string(kMostEnvelope + 1, 'x')), "too_long");
  EXPECT_EQ(verdict_of(seal_envelope(entry_, nullptr)), "unsigned");
  EXPECT_EQ(verdict_of(seal_envelope(entry_, &stranger_)), "unknown_key");
  EXPECT_EQ(verdict(sealed_, asked_for(entry_), {}), "unknown_key") << "no key is no trust";
  EXPECT_EQ(verdict_of(with_payload(sealed_, places_, "not zstd", 500, key_)), "bad_payload");
}

TEST_F(Envelope, OfAnOlderToolchainIsAnotherKeysValue) {
  const fleet::PublishedRecord old = some_entry(1, 2);
  std::string replayed = seal_envelope(old, &key_);
  EXPECT_EQ(verdict_of(replayed), "other_key");
  // With the new key in place of the old key, the signature no longer matches.
  replayed.replace(EnvelopePlaces::key, 32, sealed_, EnvelopePlaces::key, 32);
  EXPECT_EQ(verdict_of(replayed), "other_key_text");
  ASSERT_EQ(old.key_text.size(), entry_.key_text.size());
  replayed.replace(EnvelopePlaces::key_text, entry_.key_text.size(), entry_.key_text);
  EXPECT_EQ(verdict_of(replayed), "bad_signature");
  // The old payload does not match the digest that the new entry's signature covers.
  std::string mixed = sealed_.substr(0, places_.payload) + seal_envelope(old, &key_).substr(places_.payload);
  ASSERT_EQ(mixed.size(), sealed_.size());
  EXPECT_EQ(verdict_of(mixed), "bad_digest");
}

TEST_F(Envelope, KeyTextIsComparedInWhole) {
  const std::string longer = entry_.key_text + "x";
  EXPECT_EQ(verdict(sealed_, {entry_.key, longer}, trusted_), "other_key_text");
  const std::string shorter = entry_.key_text.substr(0, 20);
  EXPECT_EQ(verdict(sealed_, {entry_.key, shorter}, trusted_), "other_key_text");
  EXPECT_EQ(verdict(sealed_, {entry_.key, shorter, Asked::Text::prefix}, trusted_), "accepted");
  EXPECT_EQ(verdict(sealed_, {entry_.key, longer, Asked::Text::prefix}, trusted_), "other_key_text");
}

TEST_F(Envelope, NoChangedBitIsAccepted) {
  for (std::size_t at = 0; at < sealed_.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = sealed_;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      ASSERT_NE(verdict_of(changed), "accepted") << "byte " << at << " bit " << bit;
      // The payload is not read before the signature is verified. Then the digest covers all of it.
      ASSERT_NE(verdict_of(changed), "bad_payload") << "byte " << at << " bit " << bit;
    }
  }
}

TEST_F(Envelope, NoTruncationIsAccepted) {
  for (std::size_t size = 0; size < sealed_.size(); ++size)
    ASSERT_EQ(verdict_of(std::string_view(sealed_).substr(0, size)), "malformed") << size;
}

TEST_F(Envelope, RejectsBombsWithoutAllocatingForThem) {
  const std::string bomb = compression::compress_frame(std::string(std::size_t{48} << 20, 'x')),
                    two = compression::compress_frame(std::string(250, 'a')) +
                          compression::compress_frame(std::string(261, 'b')),
                    skippable = std::string("\x50\x2a\x4d\x18\x04\0\0\0abcd", 12);
  ASSERT_LT(bomb.size(), 5000u);
  const auto image = static_cast<std::uint32_t>(entry_.image.size());
  const std::string bombs[] = {
      with_payload(sealed_, places_, bomb, image, key_),  // 48 MiB, announced as 511 bytes
      with_payload(sealed_, places_, compression::compress_frame("little"), kMostImage,
                   key_),                                          // a few bytes, announced as the limit
      with_payload(sealed_, places_, two, 500, key_),              // two frames, 511 bytes in all
      with_payload(sealed_, places_, skippable, 0, key_),          // a skippable frame
      with_payload(sealed_, places_, bomb + 'x', 50331637, key_),  // a byte after the frame
      with_payload(sealed_, places_, bomb.substr(0, bomb.size() - 9), 50331637, key_)};
  for (const std::string& bytes : bombs) {
    g_allocated = 0;
    EXPECT_EQ(verdict_of(bytes), "bad_payload");
    EXPECT_LT(g_allocated, 1024u);
  }
  // A size above the limit is rejected before anything is decompressed.
  g_allocated = 0;
  EXPECT_EQ(verdict_of(with_payload(sealed_, places_, bomb, kMostImage + 1, key_)), "malformed");
  EXPECT_EQ(verdict_of(with_payload(sealed_, places_, bomb, 0xffffffffu, key_)), "malformed");
  // An unknown signer's payload is not read at all.
  EXPECT_EQ(verdict_of(with_payload(seal_envelope(entry_, &stranger_), places_, bomb, image, stranger_)),
            "unknown_key");
  EXPECT_LT(g_allocated, 32'768u) << "of the test's own strings";
}

TEST_F(Envelope, IsNotSealedBeyondItsLimits) {
  std::mt19937_64 random(1);
  fleet::PublishedRecord entry = entry_;
  entry.image = random_bytes(random, kMostEnvelope);
  EXPECT_EQ(seal_envelope(entry, &key_), "");
  entry.image.resize(kMostEnvelope - 2000);
  EXPECT_EQ(verdict(seal_envelope(entry, &key_), asked_for(entry), trusted_), "accepted");
  entry.image.assign(kMostImage, 'x');
  EXPECT_EQ(verdict(seal_envelope(entry, &key_), asked_for(entry), trusted_), "accepted");
  entry.image.assign(kMostImage + 1, 'x');
  EXPECT_EQ(seal_envelope(entry, &key_), "");
  entry = entry_, entry.toolchain.assign(256, 't');
  EXPECT_EQ(seal_envelope(entry, &key_), "");
}

TEST_F(Envelope, KeysRotateByTrustingBothForAWhile) {
  const std::string of_old = sealed_, of_new = seal_envelope(entry_, &stranger_);
  const std::vector<trust::PublicKey> both{key_.public_key(), stranger_.public_key()},
      only{stranger_.public_key()};
  for (const std::string* bytes : {&of_old, &of_new})
    EXPECT_EQ(verdict(*bytes, asked_for(entry_), both), "accepted");
  EXPECT_EQ(verdict(of_old, asked_for(entry_), only), "unknown_key");
  EXPECT_EQ(verdict(of_new, asked_for(entry_), only), "accepted");
  // Ids are public: another key under a trusted id must not be accepted.
  trust::PublicKey pretender = stranger_.public_key();
  pretender.id = key_.public_key().id;
  EXPECT_EQ(verdict(of_old, asked_for(entry_), {pretender}), "bad_signature");
  EXPECT_EQ(verdict(of_old, asked_for(entry_), {pretender, key_.public_key()}), "accepted");
}

TEST(SigningKey, RefusesWhatIsNone) {
  const Bytes<8> id = Bytes<8>::from_hex("0100000000000000").value();
  EXPECT_THROW(trust::SigningKey(id, "short"), Error);
  EXPECT_THROW(trust::SigningKey(id, std::string(64, 'x')), Error) << "its halves are of two keys";
  unsigned char seed[32] = {9}, open[32], secret[64];
  ::crypto_sign_seed_keypair(open, secret, seed);
  const std::string_view bytes(reinterpret_cast<const char*>(secret), 64);
  EXPECT_THROW(trust::SigningKey(Bytes<8>{}, bytes), Error) << "zeros mean unsigned";
  trust::SigningKey key(id, bytes);
  const auto signature = key.sign("x");
  const trust::SigningKey moved = std::move(key);
  EXPECT_EQ(moved.sign("x"), signature);
}

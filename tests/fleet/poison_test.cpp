// A server with 100,000 poisoned entries: none is accepted, every refusal has a reason, and good entries
// between them are still served.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <map>

#include "cache/compression/zstd.hpp"
#include "support/nightly.hpp"
#include "tests/fleet/trust_fixture.hpp"

using namespace kiln;
using namespace kiln::fleet;
using namespace kiln::testing;

namespace {

class Poison : public ::testing::Test {
 protected:
  std::size_t below(std::size_t limit) { return random_() % limit; }
  /// A good value, sealed by the trusted signer.
  std::string good(const fleet::PublishedRecord& entry) const { return seal_envelope(entry, &key_); }

  std::mt19937_64 random_{20261122};
  const trust::SigningKey key_ = signing_key(1), stranger_ = signing_key(2);
  const std::vector<trust::PublicKey> trusted_{key_.public_key()};
};

struct Poisoned {
  const char* name;
  std::function<std::string(const fleet::PublishedRecord& asked)> make;
};

}  // namespace

TEST_F(Poison, NoneOfAHundredThousandIsAccepted) {
  const int kEntries = ci_or_night(25'000, 100'000);
  const std::string bomb = compression::compress_frame(std::string(std::size_t{60} << 20, '\0'));
  const auto other = [&](const fleet::PublishedRecord& asked, bool same_specialisation) {
    const std::uint8_t specialisation = asked.key.specialisation.bytes[0],
                       toolchain = asked.key.toolchain.bytes[0];
    return same_specialisation
               ? some_entry(specialisation, static_cast<std::uint8_t>(toolchain + 1 + below(100)))
               : some_entry(static_cast<std::uint8_t>(specialisation + 1 + below(100)), toolchain);
  };
  const std::vector<Poisoned> kinds = {
      {"another key's value", [&](const fleet::PublishedRecord& e) { return good(other(e, false)); }},
      {"an older toolchain's entry", [&](const fleet::PublishedRecord& e) { return good(other(e, true)); }},
      {"an older toolchain's, relabelled",
       [&](const fleet::PublishedRecord& e) {
         const fleet::PublishedRecord old = other(e, true);
         fleet::PublishedRecord lie = old;
         lie.key = e.key, lie.key_text = e.key_text;
         std::string bytes = seal_envelope(lie, nullptr);
         const EnvelopePlaces to(lie), from(old);
         return bytes.replace(to.signed_by, 72, good(old), from.signed_by, 72);
       }},
      {"the signature of another entry",
       [&](const fleet::PublishedRecord& e) {
         fleet::PublishedRecord lie = e;
         lie.image += "; and more";
         std::string bytes = seal_envelope(lie, nullptr);
         return bytes.replace(EnvelopePlaces(lie).signed_by, 72, good(e), EnvelopePlaces(e).signed_by, 72);
       }},
      {"another payload under a good signature",
       [&](const fleet::PublishedRecord& e) {
         std::string bytes = good(e);
         const EnvelopePlaces places(e);
         for (std::size_t i = 0, n = 1 + below(20); i < n; ++i)
           bytes[places.payload + below(bytes.size() - places.payload)] ^= static_cast<char>(1 + below(255));
         return bytes == good(e) ? bytes + 'x' : bytes;
       }},
      {"unsigned", [&](const fleet::PublishedRecord& e) { return seal_envelope(e, nullptr); }},
      {"signed by a stranger", [&](const fleet::PublishedRecord& e) { return seal_envelope(e, &stranger_); }},
      {"by a stranger, in our name",
       [&](const fleet::PublishedRecord& e) {
         std::string bytes = seal_envelope(e, &stranger_);
         return bytes.replace(EnvelopePlaces(e).signed_by, 8, base::view(key_.public_key().id));
       }},
      {"a bad signature",
       [&](const fleet::PublishedRecord& e) {
         std::string bytes = good(e);
         return bytes.replace(EnvelopePlaces(e).signature, 64, random_bytes(random_, 64));
       }},
      {"truncated",
       [&](const fleet::PublishedRecord& e) {
         const std::string bytes = good(e);
         return bytes.substr(0, below(bytes.size()));
       }},
      {"something behind it",
       [&](const fleet::PublishedRecord& e) { return good(e) + random_bytes(random_, 1 + below(100)); }},
      {"a bomb, unsigned",
       [&](const fleet::PublishedRecord& e) {
         std::string bytes = with_payload(good(e), EnvelopePlaces(e), bomb, kMostImage, key_);
         return bytes.replace(EnvelopePlaces(e).signed_by, 8, std::string(8, '\0'));
       }},
      {"a bomb by a stranger",
       [&](const fleet::PublishedRecord& e) {
         return with_payload(seal_envelope(e, &stranger_), EnvelopePlaces(e), bomb, kMostImage, stranger_);
       }},
      {"a bomb by a signer, of another size than it says",
       [&](const fleet::PublishedRecord& e) {
         return with_payload(good(e), EnvelopePlaces(e), bomb, static_cast<std::uint32_t>(below(kMostImage)),
                             key_);
       }},
      {"bytes changed anywhere",
       [&](const fleet::PublishedRecord& e) {
         std::string bytes = good(e);
         bytes[below(bytes.size())] ^= static_cast<char>(1 + below(255));
         return bytes;
       }},
      {"lengths changed",
       [&](const fleet::PublishedRecord& e) {
         std::string bytes = good(e);
         const std::string before = bytes;
         bytes.replace(EnvelopePlaces::sizes + 4 * below(4), 4, random_bytes(random_, 4));
         return bytes == before ? bytes + 'x' : bytes;
       }},
      {"another schema's",
       [&](const fleet::PublishedRecord& e) {
         std::string bytes = good(e);
         return bytes.replace(EnvelopePlaces::schema, 1, 1, static_cast<char>(2 + below(200)));
       }},
      {"garbage", [&](const fleet::PublishedRecord&) { return random_bytes(random_, below(2000)); }},
      {"garbage behind the magic",
       [&](const fleet::PublishedRecord&) {
         return "kilnenv1" + std::string("\1\0\0\0", 4) + random_bytes(random_, below(2000));
       }},
  };
  std::map<std::string, std::uint64_t> reasons;
  RejectionCounts counts;
  int accepted = 0, served = 0;
  for (int i = 0; i < kEntries; ++i) {
    const fleet::PublishedRecord asked =
        some_entry(static_cast<std::uint8_t>(below(250)), static_cast<std::uint8_t>(below(50)));
    const Poisoned& kind = kinds[static_cast<std::size_t>(i) % kinds.size()];
    const auto opened = open_envelope(kind.make(asked), asked_for(asked), trusted_);
    if (const auto* reason = std::get_if<Rejection>(&opened)) {
      counts.add(*reason);
      ++reasons[name_of(*reason)];
    } else {
      ++accepted;
      ADD_FAILURE() << "accepted: " << kind.name;
    }
    if (i % 100 == 0) served += verdict(good(asked), asked_for(asked), trusted_) == "accepted";
  }
  EXPECT_EQ(accepted, 0);
  EXPECT_EQ(served, kEntries / 100);
  EXPECT_EQ(counts.all(), static_cast<std::uint64_t>(kEntries));
  for (const char* reason : {"malformed", "other_schema", "other_key", "other_key_text", "unsigned",
                             "unknown_key", "bad_signature", "bad_digest", "bad_payload"})
    EXPECT_GT(reasons[reason], 0u) << reason;
  std::printf("FIGURES poisoned: %d, accepted %d;", kEntries, accepted);
  for (const auto& [reason, times] : reasons) std::printf(" %s %lu", reason.c_str(), times);
  std::printf("\n");
}

// An entry or a row from a server. It is read as it is, under the key that it names. It is also read with a
// right digest and signature, so that the code after these checks is reached.
#include "cache/fleet/envelope.hpp"

#include <sodium.h>

#include "base/bytes.hpp"
#include "cache/compression/zstd.hpp"
#include "cache/fleet/toolchain_row.hpp"
#include "cache/trust/blake2b.hpp"
#include "tests/fuzz/target.hpp"

using namespace kiln;
using namespace kiln::fleet;

namespace {

trust::SigningKey key_of(std::uint8_t number) {
  unsigned char seed[32] = {number}, open[32], secret[64];
  ::crypto_sign_seed_keypair(open, secret, seed);
  Bytes<8> id;
  id.bytes[0] = number;
  return trust::SigningKey(id, {reinterpret_cast<const char*>(secret), sizeof secret});
}
const trust::SigningKey& signer() {
  static const trust::SigningKey key = key_of(1);
  return key;
}
/// No program signs with this key, and the corpus has no signature of
/// it. An entry that it accepts is a finding.
const trust::PublicKey& nobody() {
  static const trust::PublicKey key = key_of(2).public_key();
  return key;
}

constexpr std::size_t kKeyAt = 12, kSizesAt = 44, kTextAt = 62;

std::uint32_t number_at(std::string_view bytes, std::size_t at) {
  std::uint32_t out;
  std::memcpy(&out, bytes.data() + at, sizeof out);
  return out;
}

/// The key and key text that the entry names; nothing when the entry is too short.
std::optional<Asked> asked_by(std::string_view bytes) {
  if (bytes.size() < kTextAt) return std::nullopt;
  const std::size_t text = number_at(bytes, kSizesAt);
  if (text > bytes.size() - kTextAt) return std::nullopt;
  return Asked{{base::bytes_of<16>(bytes.substr(kKeyAt)), base::bytes_of<16>(bytes.substr(kKeyAt + 16))},
               bytes.substr(kTextAt, text)};
}

/// The entry with right payload size, digest, key id and signature.
std::string put_right(std::string bytes) {
  const std::size_t head = kTextAt + std::size_t{number_at(bytes, kSizesAt)} +
                           static_cast<std::uint8_t>(bytes[60]) + static_cast<std::uint8_t>(bytes[61]);
  if (bytes.size() < head + 104) return bytes;
  const std::string payload = bytes.substr(head + 104);
  const auto size = static_cast<std::uint32_t>(payload.size());
  bytes.replace(kSizesAt + 12, 4, reinterpret_cast<const char*>(&size), 4);
  bytes.replace(head, 32, base::view(trust::blake2b<32>(payload)));
  bytes.replace(head + 32, 8, base::view(signer().public_key().id));
  const Bytes<64> signature = signer().sign(std::string_view(bytes).substr(0, head + 40));
  return bytes.replace(head + 40, 64, base::view(signature));
}

void expect_right(const PublishedRecord& entry, const Asked& asked) {
  fuzz::expect(entry.key == asked.key && entry.key_text == asked.key_text, "what was asked for");
  fuzz::expect(entry.facts.size() <= kMostFacts && entry.image.size() <= kMostImage, "sizes within bounds");
  const std::string sealed = seal_envelope(entry, &signer());
  fuzz::expect(!sealed.empty(), "what was read can be written");
  const auto again = open_envelope(sealed, asked, {&signer().public_key(), 1});
  const auto* same = std::get_if<PublishedRecord>(&again);
  fuzz::expect(same && same->image == entry.image && same->facts == entry.facts && same->arch == entry.arch,
               "and read as the same");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::view(data, size);
  if (const auto asked = asked_by(bytes)) {
    trust::PublicKey pretender = nobody();
    if (bytes.size() > kTextAt + 8) pretender.id = base::bytes_of<8>(bytes.substr(bytes.size() / 2, 8));
    for (const trust::PublicKey& key : {nobody(), pretender})
      fuzz::expect(std::holds_alternative<Rejection>(open_envelope(bytes, *asked, {&key, 1})),
                   "nobody signed this");
    Asked other = *asked;
    other.key.toolchain.bytes[0] ^= 1;
    fuzz::expect(std::holds_alternative<Rejection>(open_envelope(bytes, other, {&signer().public_key(), 1})),
                 "another key's value");
    const std::string righted = put_right(std::string(bytes));
    if (const auto again = asked_by(righted)) {
      const auto opened = open_envelope(righted, *again, {&signer().public_key(), 1});
      if (const auto* entry = std::get_if<PublishedRecord>(&opened)) expect_right(*entry, *again);
    }
  }
  if (const auto content = compression::decompress_frame(bytes.substr(bytes.empty() ? 0 : 1),
                                                         bytes.empty() ? 0 : 7u * data[0]))
    fuzz::expect(content->size() == 7u * data[0], "exactly the announced size");
  if (bytes.size() >= kSizesAt) {
    const Key named{base::bytes_of<16>(bytes.substr(kKeyAt)), base::bytes_of<16>(bytes.substr(kKeyAt + 16))};
    fuzz::expect(std::holds_alternative<Rejection>(open_row(bytes, named, {&nobody(), 1})),
                 "nobody signed this");
    if (bytes.size() > 72) {
      std::string row(bytes);
      row.replace(row.size() - 72, 8, base::view(signer().public_key().id));
      const Bytes<64> signature = signer().sign(std::string_view(row).substr(0, row.size() - 64));
      row.replace(row.size() - 64, 64, base::view(signature));
      const auto opened = open_row(row, named, {&signer().public_key(), 1});
      if (const auto* good = std::get_if<ToolchainRow>(&opened))
        fuzz::expect(seal_row(*good, &signer()) == row, "a row has one spelling");
    }
  }
  return 0;
}

// Keys and entries for tests.
#pragma once

#include <sodium.h>

#include <random>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.hpp"
#include "cache/fleet/envelope.hpp"
#include "cache/fleet/toolchain_row.hpp"
#include "cache/trust/blake2b.hpp"
#include "cache/trust/signing_key.hpp"

namespace kiln::testing {

inline trust::SigningKey signing_key(std::uint8_t number) {
  unsigned char seed[32] = {number}, open[32], secret[64];
  ::crypto_sign_seed_keypair(open, secret, seed);
  Bytes<8> id;
  id.bytes[0] = number;
  return trust::SigningKey(id, {reinterpret_cast<const char*>(secret), sizeof secret});
}

inline std::string random_bytes(std::mt19937_64& random, std::size_t size) {
  std::string out(size, '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

inline Key numbered_key(std::uint8_t number) {
  Key key;
  key.specialisation.bytes[0] = number;
  return key;
}

/// An entry of toolchain number `toolchain`. It compresses to about half its size.
inline fleet::PublishedRecord some_entry(std::uint8_t specialisation = 1, std::uint8_t toolchain = 1,
                                         std::size_t image_bytes = 500) {
  fleet::PublishedRecord out;
  out.key.specialisation.bytes[0] = specialisation;
  out.key.toolchain.bytes[0] = toolchain;
  out.key_text = "kiln-key 1:1\ntemplate 8:rms_norm" + std::to_string(specialisation) +
                 "\ntoolchain 1:1\nnvrtc " + std::to_string(toolchain) + '\n';
  std::mt19937_64 random(specialisation * 256u + toolchain);
  out.image = random_bytes(random, image_bytes / 2) + std::string(image_bytes - image_bytes / 2, 'i');
  out.facts = "facts of it";
  out.arch = "sm_90a";
  out.toolchain = "NVRTC 13.0";
  return out;
}

inline fleet::Asked asked_for(const fleet::PublishedRecord& entry) { return {entry.key, entry.key_text}; }

/// "accepted", or the name of the reason for the rejection.
inline std::string verdict(std::string_view bytes, const fleet::Asked& asked,
                           const std::vector<trust::PublicKey>& trusted) {
  const auto opened = fleet::open_envelope(bytes, asked, trusted);
  const auto* reason = std::get_if<fleet::Rejection>(&opened);
  return reason ? fleet::name_of(*reason) : "accepted";
}

/// The offsets of an envelope's parts.
struct EnvelopePlaces {
  static constexpr std::size_t magic = 0, schema = 8, key = 12, sizes = 44, names = 60, key_text = 62;
  std::size_t digest, signed_by, signature, payload;
  explicit EnvelopePlaces(const fleet::PublishedRecord& entry)
      : digest(key_text + entry.key_text.size() + entry.arch.size() + entry.toolchain.size()),
        signed_by(digest + 32),
        signature(signed_by + 8),
        payload(signature + 64) {}
};

/// Signs the envelope again after a test has changed bytes before the signature.
inline std::string signed_again(std::string bytes, const EnvelopePlaces& places,
                                const trust::SigningKey& key) {
  const Bytes<64> signature = key.sign(std::string_view(bytes).substr(0, places.signature));
  return bytes.replace(places.signature, 64, base::view(signature));
}

/// Replaces the envelope's payload, and makes digest and signature match.
inline std::string with_payload(std::string bytes, const EnvelopePlaces& places, std::string_view payload,
                                std::uint32_t image_size, const trust::SigningKey& key) {
  const auto size = static_cast<std::uint32_t>(payload.size());
  bytes.replace(EnvelopePlaces::sizes + 8, 4, reinterpret_cast<const char*>(&image_size), 4);
  bytes.replace(EnvelopePlaces::sizes + 12, 4, reinterpret_cast<const char*>(&size), 4);
  bytes.replace(places.digest, 32, base::view(trust::blake2b<32>(payload)));
  bytes.resize(places.payload);
  return signed_again(bytes.append(payload), places, key);
}

}  // namespace kiln::testing

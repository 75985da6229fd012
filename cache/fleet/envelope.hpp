// The envelope in which one record travels through a server that nobody trusts.
//
// Envelope, schema 1, little-endian, at most 16 MiB:
//   8   magic "kilnenv1"
//   u32 schema: 1
//   32  key: specialisation digest, toolchain digest; so the signature covers the name it lies under
//   u32 key text size, u32 facts size, u32 image size, u32 payload size
//   u8  arch size, u8 toolchain name size
//   key text, arch ("sm_90a"), toolchain name (for people: "NVRTC 13.0")
//   32  BLAKE2b-256 of the payload
//   8   id of the key that signed it; zeros: unsigned
//   64  Ed25519 signature of everything before it
//   payload: one zstd frame of the image and then the facts, and nothing behind it
// What is signed begins with the magic, so it is never mistaken for a row or a bundle's signature, which the
// same key may have made.
//
// The payload comes last so that a signature is checked over a few KB, and its digest says the rest.
// History: schema 1, the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "cache/fleet/rejection.hpp"
#include "cache/record/record.hpp"
#include "cache/trust/signing_key.hpp"
#include "kiln/digest.hpp"

namespace kiln::fleet {

inline constexpr std::string_view kEnvelopeMagic = "kilnenv1";
inline constexpr std::uint32_t kEnvelopeSchema = 1;
/// In bytes. No value is allocated for before it has been compared with its limit.
inline constexpr std::size_t kMostEnvelope = std::size_t{16} << 20, kMostKeyText = std::size_t{4} << 20,
                             kMostFacts = std::size_t{1} << 20, kMostImage = std::size_t{64} << 20,
                             kMostName = 255;

/// A record, and what an envelope says beside it.
struct PublishedRecord : cache::Record {
  std::string arch{}, toolchain{};  ///< for people; whoever decides by them asks the facts
  Bytes<8> signed_by{};             ///< set by open_envelope
};

/// What a node asked the server for.
struct Asked {
  Key key;
  std::string_view key_text;
  /// `prefix`: of a host without a compiler, which knows the specialisation's section of the text alone; the
  /// caller makes the key of the entry's whole text again.
  enum class Text : std::uint8_t { whole, prefix } compare = Text::whole;
};

/// The envelope, or empty when the entry is beyond a limit, compressed or not: such is not published.
/// Without a `signer` it is unsigned, which no node takes. Throws bad_alloc.
std::string seal_envelope(const PublishedRecord& record, const trust::SigningKey* signer);

/// Verifies in this order: length, magic and grammar, schema, key, key text, signature, digest of the payload
/// as it came; and only then decompresses, to exactly the announced size. Until the digest is verified
/// nothing is allocated; beyond `bytes` it takes what was announced (65 MiB at most) and zstd's fixed
/// context, which for one whole frame needs no window. Throws bad_alloc.
std::variant<PublishedRecord, Rejection> open_envelope(std::string_view bytes, const Asked& asked,
                                                       std::span<const trust::PublicKey> trusted);

}  // namespace kiln::fleet

// The envelope in which one record travels through a server that nobody trusts.
//
// Envelope, schema 1, little-endian, at most 16 MiB:
//
//     8   magic "kilnenv1"
//     u32 schema: 1
//     32  key: specialisation digest, toolchain digest; so the signature covers the name it lies under
//     u32 key text size, u32 facts size, u32 image size, u32 payload size
//     u8  arch size, u8 toolchain name size
//     key text, arch ("sm_90a"), toolchain name (for people: "NVRTC 13.0")
//     32  BLAKE2b-256 of the payload
//     8   id of the key that signed it; zeros: unsigned
//     64  Ed25519 signature of everything before it
//     payload: one zstd frame of the image and then the facts, and nothing after it
//
// The signed bytes begin with the magic, so a signature is never mistaken for one over a row or a bundle,
// which the same key may have made.
//
// The payload comes last so that a signature is checked over a few KB; the digest in them covers the payload.
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
/// Limits in bytes. Nothing is allocated for a value before its size was compared with its limit.
inline constexpr std::size_t kMostEnvelope = std::size_t{16} << 20, kMostKeyText = std::size_t{4} << 20,
                             kMostFacts = std::size_t{1} << 20, kMostImage = std::size_t{64} << 20,
                             kMostName = 255;

/// A record, and what its envelope says beside it.
struct PublishedRecord : cache::Record {
  std::string arch{}, toolchain{};  ///< for people; decisions are made by the facts
  Bytes<8> signed_by{};             ///< set by open_envelope
};

/// The entry that a node asked the server for.
struct Asked {
  Key key;
  std::string_view key_text;
  /// `prefix` is for a host without a compiler, which knows only the specialisation's section of the text.
  /// The caller then makes the key again from the entry's whole text.
  enum class Text : std::uint8_t { whole, prefix } compare = Text::whole;
};

/// Returns the envelope, or an empty string when the entry is beyond a limit, compressed or not; it is not
/// published then. Without a `signer` the envelope is unsigned, which no node takes. Throws bad_alloc.
std::string seal_envelope(const PublishedRecord& record, const trust::SigningKey* signer);

/// Verifies in this order: length, magic and grammar, schema, key, key text, signature, digest of the
/// compressed payload. Only then it decompresses, to exactly the announced size. Nothing is allocated until
/// the digest is verified. After that it takes, beyond `bytes`, the announced size (65 MiB at most) and
/// zstd's fixed context, which needs no window for one whole frame. Throws bad_alloc.
std::variant<PublishedRecord, Rejection> open_envelope(std::string_view bytes, const Asked& asked,
                                                       std::span<const trust::PublicKey> trusted);

}  // namespace kiln::fleet

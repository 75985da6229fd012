#include "cache/fleet/envelope.hpp"

#include <optional>

#include "base/bytes.hpp"
#include "base/wire.hpp"
#include "cache/compression/zstd.hpp"
#include "cache/fleet/signature.hpp"
#include "cache/trust/blake2b.hpp"

namespace kiln::fleet {
namespace {

using base::bytes_of;
using base::view;

constexpr std::size_t kSignatureBytes = 64;

struct ParsedEnvelope {
  std::uint32_t schema = 0;
  Key key;
  std::size_t facts = 0, image = 0;
  std::string_view key_text, arch, toolchain, payload, covered;
  Bytes<32> digest;
  Bytes<8> signed_by;
  Bytes<64> signature;
};

/// Checks every length against its limit and the bytes that are there. An envelope of another schema is read
/// no further than the schema's number.
std::optional<ParsedEnvelope> parse_envelope(std::string_view bytes) try {
  base::Reader in(bytes);
  ParsedEnvelope out;
  if (in.take(kEnvelopeMagic.size()) != kEnvelopeMagic) return std::nullopt;
  out.schema = in.number<std::uint32_t>();
  if (out.schema != kEnvelopeSchema) return out;
  out.key.specialisation = bytes_of<16>(in.take(16));
  out.key.toolchain = bytes_of<16>(in.take(16));
  const auto key_text = in.number<std::uint32_t>();
  out.facts = in.number<std::uint32_t>();
  out.image = in.number<std::uint32_t>();
  const auto payload = in.number<std::uint32_t>();
  const auto arch = in.number<std::uint8_t>(), toolchain = in.number<std::uint8_t>();
  if (key_text > kMostKeyText || out.facts > kMostFacts || out.image > kMostImage) return std::nullopt;
  out.key_text = in.take(key_text);
  out.arch = in.take(arch);
  out.toolchain = in.take(toolchain);
  out.digest = bytes_of<32>(in.take(32));
  out.signed_by = bytes_of<8>(in.take(8));
  out.covered = bytes.substr(0, bytes.size() - in.left());
  out.signature = bytes_of<64>(in.take(kSignatureBytes));
  if (in.left() != payload) return std::nullopt;
  out.payload = in.take(payload);
  return out;
} catch (const base::Malformed&) {
  return std::nullopt;
}

}  // namespace

std::string seal_envelope(const PublishedRecord& record, const trust::SigningKey* signer) {
  if (record.key_text.size() > kMostKeyText || record.facts.size() > kMostFacts ||
      record.image.size() > kMostImage || record.arch.size() > kMostName ||
      record.toolchain.size() > kMostName)
    return {};
  std::string content;
  content.reserve(record.image.size() + record.facts.size());
  content.append(record.image).append(record.facts);
  const std::string payload = compression::compress_frame(content);
  base::Writer out;
  out.str().reserve(256 + record.key_text.size() + 2 * kMostName + payload.size());
  out.str().append(kEnvelopeMagic);
  out.number(kEnvelopeSchema);
  out.str().append(view(record.key.specialisation)).append(view(record.key.toolchain));
  for (const std::size_t size :
       {record.key_text.size(), record.facts.size(), record.image.size(), payload.size()})
    out.number(static_cast<std::uint32_t>(size));
  out.number(static_cast<std::uint8_t>(record.arch.size()));
  out.number(static_cast<std::uint8_t>(record.toolchain.size()));
  out.str().append(record.key_text).append(record.arch).append(record.toolchain);
  out.str().append(view(trust::blake2b<32>(payload)));
  out.str().append(view(signer ? signer->public_key().id : Bytes<8>{}));
  out.str().append(view(signer ? signer->sign(out.str()) : Bytes<64>{}));
  if (out.str().size() + payload.size() > kMostEnvelope) return {};
  out.str().append(payload);
  return std::move(out.str());
}

std::variant<PublishedRecord, Rejection> open_envelope(std::string_view bytes, const Asked& asked,
                                                       std::span<const trust::PublicKey> trusted) {
  if (bytes.size() > kMostEnvelope) return Rejection::too_long;
  const auto parsed = parse_envelope(bytes);
  if (!parsed) return Rejection::malformed;
  if (parsed->schema != kEnvelopeSchema) return Rejection::other_schema;
  if (parsed->key != asked.key) return Rejection::other_key;
  if (asked.compare == Asked::Text::whole ? parsed->key_text != asked.key_text
                                          : !parsed->key_text.starts_with(asked.key_text))
    return Rejection::other_key_text;
  if (const auto reason = check_signature(parsed->covered, parsed->signed_by, parsed->signature, trusted))
    return *reason;
  if (!(trust::blake2b<32>(parsed->payload) == parsed->digest)) return Rejection::bad_digest;
  auto content = compression::decompress_frame(parsed->payload, parsed->image + parsed->facts);
  if (!content) return Rejection::bad_payload;
  PublishedRecord out;
  out.key = parsed->key;
  out.key_text = parsed->key_text;
  out.facts = content->substr(parsed->image);
  content->resize(parsed->image);
  out.image = std::move(*content);
  out.arch = parsed->arch;
  out.toolchain = parsed->toolchain;
  out.signed_by = parsed->signed_by;
  return out;
}

}  // namespace kiln::fleet

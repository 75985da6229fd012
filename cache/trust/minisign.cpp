#include "cache/trust/minisign.hpp"

#include "base/bytes.hpp"
#include "cache/trust/base64.hpp"
#include "cache/trust/ed25519.hpp"
#include "cache/trust/lines.hpp"
#include "cache/trust/sodium.hpp"

namespace kiln::trust {
namespace {

using base::bytes_of;
using base::view;
using ed25519::is_signed_by;

constexpr std::string_view kPrehashed = "ED", kLegacy = "Ed";
constexpr std::size_t kSignatureBytes = 74;

}  // namespace

std::string Signature::file(const std::string& untrusted_comment) const {
  const std::string bytes = std::string(kPrehashed).append(view(key_id)).append(view(signature));
  return std::string(kUntrusted) + untrusted_comment + '\n' + to_base64(bytes) + '\n' +
         std::string(kTrusted) + trusted_comment + '\n' + to_base64(view(global)) + '\n';
}

Signature parse_signature(std::string_view text) {
  if (text.size() > kMaxSignatureFile) throw BadSignature("the file is too large for a signature");
  const std::string_view untrusted = take_line(text), first = take_line(text), trusted = take_line(text),
                         second = take_line(text);
  if (!untrusted.starts_with(kUntrusted) || !trusted.starts_with(kTrusted) || !text.empty())
    throw BadSignature("the signature is not in minisign's format");
  const auto bytes = from_base64(first, kSignatureBytes), global = from_base64(second, 64);
  if (!bytes || !global) throw BadSignature("the signature is not in minisign's format");
  if (bytes->starts_with(kLegacy))
    throw BadSignature(
        "the signature is of minisign's former kind, which signs the file and not its digest; sign again "
        "with 'kiln bundle sign' or minisign -S -H");
  if (!bytes->starts_with(kPrehashed)) throw BadSignature("the signature is of an unknown kind");
  Signature out;
  out.key_id = bytes_of<8>(std::string_view(*bytes).substr(2));
  out.signature = bytes_of<64>(std::string_view(*bytes).substr(10));
  out.global = bytes_of<64>(std::string_view(*global).substr(0));
  out.trusted_comment = trusted.substr(kTrusted.size());
  if (out.trusted_comment.size() > kMaxTrustedComment)
    throw BadSignature("the signature's trusted comment is too long");
  return out;
}

void verify(const Signature& signature, const PublicKey& key, const FileDigest& digest) {
  need_sodium();
  if (!(signature.key_id == key.id))
    throw BadSignature("it is signed with key " + text_of(signature.key_id) + ", and key " + key.id_text() +
                       " is required");
  if (!is_signed_by(signature.signature, view(digest), key.key))
    throw BadSignature(
        "the file was changed after it was signed, or the signature is of another file or was not "
        "made with key " +
        key.id_text());
  if (!is_signed_by(signature.global,
                    std::string(view(signature.signature)).append(signature.trusted_comment), key.key))
    throw BadSignature("the signature's trusted comment was not signed with key " + key.id_text());
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string out;
  for (const char c : text.substr(0, limit)) out += c == '\t' ? ' ' : c >= 0x20 && c < 0x7f ? c : '?';
  if (text.size() > limit) out += "...";
  return out;
}

}  // namespace kiln::trust

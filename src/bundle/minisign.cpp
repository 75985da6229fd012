#include "bundle/minisign.hpp"

#include <sodium.h>

#include <algorithm>

#include "bundle/base64.hpp"
#include "bundle/lines.hpp"
#include "bundle/sodium.hpp"

namespace kiln::bundle {
namespace {

constexpr std::string_view kKeyKind = "Ed", kPrehashed = "ED", kLegacy = "Ed";
constexpr std::size_t kPublicKeyBytes = 42, kPublicKeyText = 56, kSignatureBytes = 74;

template <std::size_t N>
std::string_view view(const Bytes<N>& bytes) {
  return {reinterpret_cast<const char*>(bytes.bytes.data()), N};
}
template <std::size_t N>
Bytes<N> bytes_at(std::string_view from, std::size_t at) {
  Bytes<N> out;
  std::copy_n(from.data() + at, N, reinterpret_cast<char*>(out.bytes.data()));
  return out;
}

bool is_signed_by(const Bytes<64>& signature, std::string_view message, const PublicKey& key) {
  return ::crypto_sign_verify_detached(signature.bytes.data(),
                                       reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                                       key.key.bytes.data()) == 0;
}

[[noreturn]] void no_key(const char* why) {
  throw Error(Errc::invalid_argument,
              std::string("it is no public key of minisign's kind: ") + why +
                  "; expected are 56 characters that begin with RW, alone or below a comment line");
}

}  // namespace

std::string text_of(const Bytes<8>& key_id) {
  Bytes<8> reversed = key_id;  // minisign prints it as a little-endian number
  std::reverse(reversed.bytes.begin(), reversed.bytes.end());
  std::string out = reversed.hex();
  std::transform(out.begin(), out.end(), out.begin(), [](char c) { return c >= 'a' ? char(c - 32) : c; });
  return out;
}

std::string PublicKey::id_text() const { return text_of(id); }

std::string PublicKey::text() const {
  return to_base64(std::string(kKeyKind).append(view(id)).append(view(key)));
}

std::string PublicKey::file() const {
  return std::string(kUntrusted) + "minisign public key " + id_text() + '\n' + text() + '\n';
}

bool looks_like_public_key(std::string_view text) noexcept {
  return text.size() == kPublicKeyText && text.starts_with("RW");
}

PublicKey parse_public_key(std::string_view text) {
  if (text.size() > kMaxKeyFile) no_key("too long");
  if (text.starts_with(kUntrusted)) take_line(text);
  const std::string_view line = take_line(text);
  if (!text.empty()) no_key("there are more lines");
  const auto bytes = from_base64(line, kPublicKeyBytes);
  if (!bytes) no_key("not base64 of 42 bytes");
  if (!bytes->starts_with(kKeyKind)) no_key("not an Ed25519 key");
  return {bytes_at<8>(*bytes, 2), bytes_at<32>(*bytes, 10)};
}

std::string Signature::file(const std::string& untrusted_comment) const {
  const std::string bytes = std::string(kPrehashed).append(view(key_id)).append(view(signature));
  return std::string(kUntrusted) + untrusted_comment + '\n' + to_base64(bytes) + '\n' +
         std::string(kTrusted) + trusted_comment + '\n' + to_base64(view(global)) + '\n';
}

Signature parse_signature(std::string_view text) {
  if (text.size() > kMaxSignatureFile) throw BadSignature("the signature is too long to be one");
  const std::string_view untrusted = take_line(text), first = take_line(text), trusted = take_line(text),
                         second = take_line(text);
  if (!untrusted.starts_with(kUntrusted) || !trusted.starts_with(kTrusted) || !text.empty())
    throw BadSignature("the signature is not in minisign's format");
  const auto bytes = from_base64(first, kSignatureBytes), global = from_base64(second, 64);
  if (!bytes || !global) throw BadSignature("the signature is not in minisign's format");
  if (bytes->starts_with(kLegacy))
    throw BadSignature(
        "the signature is of minisign's former kind, which signs the file and not its digest; sign again "
        "with "
        "'kiln bundle sign' or minisign -S -H");
  if (!bytes->starts_with(kPrehashed)) throw BadSignature("the signature is of an unknown kind");
  Signature out;
  out.key_id = bytes_at<8>(*bytes, 2);
  out.signature = bytes_at<64>(*bytes, 10);
  out.global = bytes_at<64>(*global, 0);
  out.trusted_comment = trusted.substr(kTrusted.size());
  if (out.trusted_comment.size() > kMaxTrustedComment)
    throw BadSignature("the signature's trusted comment is too long");
  return out;
}

void verify(const Signature& signature, const PublicKey& key, const FileDigest& digest) {
  need_sodium();
  if (!(signature.key_id == key.id))
    throw BadSignature("it is signed with key " + text_of(signature.key_id) + ", and required is key " +
                       key.id_text());
  if (!is_signed_by(signature.signature, view(digest), key))
    throw BadSignature("the signature is not of this file, or not by key " + key.id_text());
  if (!is_signed_by(signature.global,
                    std::string(view(signature.signature)).append(signature.trusted_comment), key))
    throw BadSignature("the signature's trusted comment is not by key " + key.id_text());
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string out;
  for (const char c : text.substr(0, limit)) out += c == '\t' ? ' ' : c >= 0x20 && c < 0x7f ? c : '?';
  if (text.size() > limit) out += "...";
  return out;
}

}  // namespace kiln::bundle

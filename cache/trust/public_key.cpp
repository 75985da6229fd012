#include "cache/trust/public_key.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "cache/trust/base64.hpp"
#include "cache/trust/lines.hpp"
#include "kiln/error.hpp"

namespace kiln::trust {
namespace {

using base::bytes_of;
using base::view;

constexpr std::string_view kKeyKind = "Ed";
constexpr std::size_t kPublicKeyBytes = 42, kPublicKeyText = 56, kSecretKeyText = 212;

[[noreturn]] void no_key(const char* why) {
  throw Error(Errc::invalid_argument,
              std::string("it is not a minisign public key: ") + why +
                  "; expected 56 characters that begin with RW, alone or below a comment line");
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
  if (line.size() == kSecretKeyText && line.starts_with("RW"))
    throw Error(
        Errc::invalid_argument,
        "this is a secret key; give the public key, which 'kiln bundle keygen NAME' writes to NAME.pub");
  const auto bytes = from_base64(line, kPublicKeyBytes);
  if (!bytes) no_key("not base64 of 42 bytes");
  if (!bytes->starts_with(kKeyKind)) no_key("not an Ed25519 key");
  return {bytes_of<8>(std::string_view(*bytes).substr(2)), bytes_of<32>(std::string_view(*bytes).substr(10))};
}

}  // namespace kiln::trust

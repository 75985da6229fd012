#include "cache/trust/ed25519.hpp"

#include <sodium.h>

#include "base/bytes.hpp"
#include "cache/trust/sodium.hpp"

namespace kiln::trust::ed25519 {
namespace {

static_assert(kSecretBytes == crypto_sign_SECRETKEYBYTES && kPublicBytes == crypto_sign_PUBLICKEYBYTES);

}  // namespace

std::string generate() {
  unsigned char unused[kPublicBytes];
  std::string secret(kSecretBytes, '\0');
  ::crypto_sign_keypair(unused, reinterpret_cast<unsigned char*>(secret.data()));
  return secret;
}

bool halves_agree(std::string_view secret) noexcept {
  unsigned char open[kPublicBytes], whole[kSecretBytes];
  ::crypto_sign_seed_keypair(open, whole, raw(secret));
  ::sodium_memzero(whole, sizeof whole);
  return ::sodium_memcmp(open, secret.data() + kSecretBytes - kPublicBytes, sizeof open) == 0;
}

Bytes<kPublicBytes> public_half(std::string_view secret) noexcept {
  return base::bytes_of<kPublicBytes>(secret.substr(kSecretBytes - kPublicBytes));
}

Bytes<64> sign(std::string_view message, std::string_view secret) noexcept {
  Bytes<64> out;
  ::crypto_sign_detached(out.bytes.data(), nullptr, raw(message), message.size(), raw(secret));
  return out;
}

bool is_signed_by(const Bytes<64>& signature, std::string_view message,
                  const Bytes<kPublicBytes>& key) noexcept {
  return ::crypto_sign_verify_detached(signature.bytes.data(), raw(message), message.size(),
                                       key.bytes.data()) == 0;
}

}  // namespace kiln::trust::ed25519

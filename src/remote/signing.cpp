#include "remote/signing.hpp"

#include <sodium.h>

#include <string>

#include "kiln/error.hpp"

namespace kiln::remote {
namespace {

const unsigned char* raw(std::string_view bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

SigningKey::SigningKey(const Bytes<8>& id, std::string_view secret) {
  static_assert(kSecretBytes == crypto_sign_SECRETKEYBYTES);
  if (::sodium_init() < 0) throw Error(Errc::internal, "libsodium cannot start: no source of randomness");
  if (secret.size() != kSecretBytes)
    throw Error(Errc::invalid_argument, "a signing key has " + std::to_string(kSecretBytes) + " bytes, not " +
                                            std::to_string(secret.size()));
  if (id == Bytes<8>{})
    throw Error(Errc::invalid_argument, "a signing key's id is zero, which means unsigned");
  public_.id = id;
  ::crypto_sign_seed_keypair(public_.key.bytes.data(), secret_.data(), raw(secret));
  if (::sodium_memcmp(secret_.data(), secret.data(), kSecretBytes) != 0) {
    ::sodium_memzero(secret_.data(), secret_.size());
    throw Error(Errc::invalid_argument, "the two halves of a signing key are not of one key");
  }
}

SigningKey::SigningKey(SigningKey&& other) noexcept : public_(other.public_), secret_(other.secret_) {
  ::sodium_memzero(other.secret_.data(), other.secret_.size());
}
SigningKey& SigningKey::operator=(SigningKey&& other) noexcept {
  std::swap(public_, other.public_);
  std::swap(secret_, other.secret_);
  return *this;
}
SigningKey::~SigningKey() { ::sodium_memzero(secret_.data(), secret_.size()); }

Bytes<64> SigningKey::sign(std::string_view message) const noexcept {
  Bytes<64> out;
  ::crypto_sign_detached(out.bytes.data(), nullptr, raw(message), message.size(), secret_.data());
  return out;
}

std::optional<Rejection> check_signature(std::string_view message, const Bytes<8>& id,
                                         const Bytes<64>& signature,
                                         std::span<const PublicKey> keys) noexcept {
  if (id == Bytes<8>{}) return Rejection::unsigned_;
  if (::sodium_init() < 0) return Rejection::bad_signature;
  bool known = false;
  for (const PublicKey& key : keys) {
    if (!(key.id == id)) continue;  // ids are nobody's secret, and two keys may have the same
    known = true;
    if (::crypto_sign_verify_detached(signature.bytes.data(), raw(message), message.size(),
                                      key.key.bytes.data()) == 0)
      return std::nullopt;
  }
  return known ? Rejection::bad_signature : Rejection::unknown_key;
}

Bytes<32> blake2b(std::string_view bytes) noexcept {
  Bytes<32> out;
  ::crypto_generichash(out.bytes.data(), out.bytes.size(), raw(bytes), bytes.size(), nullptr, 0);
  return out;
}

}  // namespace kiln::remote

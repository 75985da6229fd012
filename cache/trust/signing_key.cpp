#include "cache/trust/signing_key.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "cache/trust/sodium.hpp"
#include "kiln/error.hpp"

namespace kiln::trust {

SigningKey::SigningKey(const Bytes<8>& id, std::string_view secret) {
  need_sodium();
  if (secret.size() != kSecretBytes)
    throw Error(Errc::invalid_argument, "a signing key has " + std::to_string(kSecretBytes) + " bytes, not " +
                                            std::to_string(secret.size()));
  if (id == Bytes<8>{})
    throw Error(Errc::invalid_argument, "a signing key's id is zero, which means unsigned");
  if (!ed25519::halves_agree(secret))
    throw Error(Errc::invalid_argument, "the two halves of a signing key do not belong to one key");
  public_.id = id;
  public_.key = ed25519::public_half(secret);
  std::copy(secret.begin(), secret.end(), secret_.begin());
}

SigningKey::SigningKey(SigningKey&& other) noexcept : public_(other.public_), secret_(other.secret_) {
  wipe(other.secret_.data(), other.secret_.size());
}
SigningKey& SigningKey::operator=(SigningKey&& other) noexcept {
  std::swap(public_, other.public_);
  std::swap(secret_, other.secret_);
  return *this;
}
SigningKey::~SigningKey() { wipe(secret_.data(), secret_.size()); }

Bytes<64> SigningKey::sign(std::string_view message) const noexcept {
  return ed25519::sign(message, {secret_.data(), secret_.size()});
}

}  // namespace kiln::trust

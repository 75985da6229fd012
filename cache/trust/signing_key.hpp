// An Ed25519 key that signs what this node sends to the fleet. The caller decides where a key is read from.
#pragma once

#include <array>
#include <string_view>

#include "cache/trust/ed25519.hpp"
#include "cache/trust/public_key.hpp"

namespace kiln::trust {

/// Immutable after construction. Its secret is zeroed on destruction.
class SigningKey {
 public:
  static constexpr std::size_t kSecretBytes = ed25519::kSecretBytes;
  /// `secret` is seed and public key, 64 bytes; `id` is minisign's. Throws Error(invalid_argument): another
  /// length, halves that are not of one key (signing with such a key would give the seed away), or an id of
  /// zeros, which means "unsigned" and belongs to no key. Throws Error(internal) when libsodium cannot start.
  SigningKey(const Bytes<8>& id, std::string_view secret);
  SigningKey(SigningKey&& other) noexcept;
  SigningKey& operator=(SigningKey&& other) noexcept;
  ~SigningKey();

  const PublicKey& public_key() const noexcept { return public_; }
  /// Thread-safe.
  Bytes<64> sign(std::string_view message) const noexcept;

 private:
  PublicKey public_;
  std::array<char, kSecretBytes> secret_{};
};

}  // namespace kiln::trust

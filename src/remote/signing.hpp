// Ed25519 keys as bytes, and the BLAKE2b that a signature covers. Where keys are read from is the caller's
// matter; the id is minisign's.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "kiln/digest.hpp"
#include "remote/rejection.hpp"

namespace kiln::remote {

/// An id of zeros means "unsigned" and belongs to no key.
struct PublicKey {
  Bytes<8> id;
  Bytes<32> key;
};

class SigningKey {
 public:
  static constexpr std::size_t kSecretBytes = 64;
  /// `secret` is seed and public key, 64 bytes. Throws Error(invalid_argument): another length, halves that
  /// are not of one key (signing with such would give the seed away), or an id of zeros; Error(internal) when
  /// libsodium cannot start.
  SigningKey(const Bytes<8>& id, std::string_view secret);
  SigningKey(SigningKey&& other) noexcept;
  SigningKey& operator=(SigningKey&& other) noexcept;
  /// Zeroes the secret.
  ~SigningKey();

  const PublicKey& public_key() const noexcept { return public_; }
  /// Thread-safe.
  Bytes<64> sign(std::string_view message) const noexcept;

 private:
  PublicKey public_;
  std::array<unsigned char, kSecretBytes> secret_{};
};

/// Nothing when `signature` is that of one of `keys` with this id over `message`; else unsigned_, unknown_key
/// or bad_signature. Also bad_signature when libsodium cannot start.
std::optional<Rejection> check_signature(std::string_view message, const Bytes<8>& id,
                                         const Bytes<64>& signature,
                                         std::span<const PublicKey> keys) noexcept;

/// BLAKE2b-256.
Bytes<32> blake2b(std::string_view bytes) noexcept;

template <std::size_t N>
std::string_view view(const Bytes<N>& bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.bytes.data()), N};
}

/// REQUIRES: N bytes.
template <std::size_t N>
Bytes<N> bytes_of(std::string_view from) noexcept {
  Bytes<N> out;
  std::memcpy(out.bytes.data(), from.data(), N);
  return out;
}

}  // namespace kiln::remote

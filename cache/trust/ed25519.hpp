// The only wrapper of libsodium's Ed25519: key pairs, signatures over a message, and their verification.
// A secret key is 64 bytes, the seed and then the public key, as libsodium and minisign store it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "kiln/digest.hpp"

namespace kiln::trust::ed25519 {

inline constexpr std::size_t kSecretBytes = 64, kPublicBytes = 32;

/// A new secret key. The caller wipes it. REQUIRES: need_sodium() has returned.
std::string generate();
/// Returns whether the public half belongs to the seed. Signing with a key whose halves disagree would give
/// the seed away. REQUIRES: `secret` has kSecretBytes.
bool halves_agree(std::string_view secret) noexcept;
/// REQUIRES: `secret` has kSecretBytes.
Bytes<kPublicBytes> public_half(std::string_view secret) noexcept;
/// Thread-safe. REQUIRES: `secret` has kSecretBytes, and its halves agree.
Bytes<64> sign(std::string_view message, std::string_view secret) noexcept;
/// Thread-safe.
bool is_signed_by(const Bytes<64>& signature, std::string_view message,
                  const Bytes<kPublicBytes>& key) noexcept;

}  // namespace kiln::trust::ed25519

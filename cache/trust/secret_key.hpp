// A secret key in minisign's format, plain or under a password. It signs files.
//
// The file: a comment line, then base64 of 158 bytes:
//
//     2   "Ed"
//     2   "Sc" (scrypt) or two zeros (no password)
//     2   "B2"
//     48  for scrypt: salt (32), u64 operations limit, u64 memory limit
//     104 key id (8), Ed25519 secret key (64), BLAKE2b-256 of "Ed", id and key (32)
//
// In a key without a password minisign writes zeros for the BLAKE2b-256. With a password, all 104 bytes are
// XORed with what scrypt makes of the password.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "cache/trust/minisign.hpp"

namespace kiln::trust {

/// Bytes whose memory is zeroed before it is given back.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string bytes) noexcept : bytes_(std::move(bytes)) {}
  Secret(Secret&& other) noexcept;
  Secret& operator=(Secret&& other) noexcept;
  ~Secret();
  const std::string& bytes() const noexcept { return bytes_; }

 private:
  void wipe() noexcept;
  std::string bytes_;
};

class SecretKey {
 public:
  static SecretKey generate();
  /// `password` is called only when the key has one. Throws Error(invalid_argument) for text that is no
  /// secret key, a wrong password, or a key for which scrypt needs more work or memory (1 GiB) than minisign
  /// itself ever asks for.
  static SecretKey parse(std::string_view text, const std::function<Secret()>& password);

  PublicKey public_key() const;
  Signature sign(const FileDigest& digest, const std::string& trusted_comment) const;
  /// The text of minisign's file for the key, without a password.
  Secret file() const;
  /// Seed and public key, 64 bytes, for code that signs other things with the same key.
  const std::string& bytes() const noexcept { return key_.bytes(); }

 private:
  SecretKey() = default;
  Bytes<8> id_;
  Secret key_;  // 64 bytes: seed and public key
};

}  // namespace kiln::trust

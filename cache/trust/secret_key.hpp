// A secret key in minisign's format, plain or under a password, and signing files with it.
//
// The file: a comment line, then base64 of 158 bytes:
//   2   "Ed"
//   2   "Sc" (scrypt) or two zeros (no password)
//   2   "B2"
//   32  salt, u64 operations limit, u64 memory limit: of scrypt
//   104 key id (8), Ed25519 secret key (64), BLAKE2b-256 of "Ed", id and key (32; minisign
//       writes zeros there without a password); with a password, the whole
//       of it XORed with what scrypt makes of the password
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "cache/trust/minisign.hpp"

namespace kiln::trust {

/// Memory that is zeroed before it is given back.
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
  /// `password` is asked only when the key has one. Throws Error(invalid_argument): no secret key, a wrong
  /// password, or more work or memory (1 GiB) for scrypt than minisign itself ever asks for.
  static SecretKey parse(std::string_view text, const std::function<Secret()>& password);

  PublicKey public_key() const;
  Signature sign(const FileDigest& digest, const std::string& trusted_comment) const;
  /// minisign's file, without a password.
  Secret file() const;
  /// Seed and public key, 64 bytes: for whoever signs other things with the same key.
  const std::string& bytes() const noexcept { return key_.bytes(); }

 private:
  SecretKey() = default;
  Bytes<8> id_;
  Secret key_;  // 64 bytes: seed and public key
};

}  // namespace kiln::trust

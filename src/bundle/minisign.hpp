// Signatures in minisign's format, so that its own tool verifies ours and we verify its.
//
// Public key file: a comment line, then base64 of
//   "Ed", 8 key id, 32 Ed25519 public key
// Signature file (FILE.minisig):
//   untrusted comment: ...
//   base64 of "ED", 8 key id, 64 signature of the file's BLAKE2b-512
//   trusted comment: ...
//   base64 of the 64 bytes of the global signature: of the 64 bytes above and the trusted comment
// The former kind that signs the file itself ("Ed") is refused: it would have to be held in memory whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kiln/digest.hpp"
#include "kiln/error.hpp"

namespace kiln::bundle {

inline constexpr std::size_t kMaxSignatureFile = std::size_t{16} << 10, kMaxKeyFile = std::size_t{4} << 10;
inline constexpr std::size_t kMaxTrustedComment = 4096;
using FileDigest = Bytes<64>;  ///< BLAKE2b-512

/// A signature that is not of this file, not by this key, or no signature at all.
struct BadSignature : Error {
  explicit BadSignature(const std::string& message) : Error(Errc::io, message) {}
};

struct PublicKey {
  Bytes<8> id;
  Bytes<32> key;
  /// "RWQf6LRC..."
  std::string text() const;
  /// As minisign's file.
  std::string file() const;
  /// As minisign prints it: the number that its comments name.
  std::string id_text() const;
};
/// The one line, or the file's two. Throws Error(invalid_argument).
PublicKey parse_public_key(std::string_view text);
/// The key alone, in its one line.
bool looks_like_public_key(std::string_view text) noexcept;

struct Signature {
  Bytes<8> key_id;
  Bytes<64> signature, global;
  std::string trusted_comment;
  std::string file(const std::string& untrusted_comment) const;
};
/// Throws BadSignature.
Signature parse_signature(std::string_view text);
/// Throws BadSignature unless `key` made it for a file of this digest, trusted comment included.
void verify(const Signature& signature, const PublicKey& key, const FileDigest& digest);
/// "4AB3F5B4E5CFA1E5": a key id as minisign prints it.
std::string text_of(const Bytes<8>& key_id);

/// Printable on a terminal: control characters and what is no UTF-8 are replaced, and it is cut to `limit`.
std::string printable(std::string_view text, std::size_t limit = 512);

}  // namespace kiln::bundle

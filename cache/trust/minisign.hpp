// Signatures in minisign's format, so that minisign verifies ours and we verify minisign's.
//
// Signature file (FILE.minisig):
//
//     untrusted comment: ...
//     base64 of "ED", 8 key id, 64 signature of the file's BLAKE2b-512
//     trusted comment: ...
//     base64 of the 64 bytes of the global signature: of the 64 bytes above and the trusted comment
//
// minisign's former kind ("Ed") signs the file itself. It is refused, since the whole file would have to
// be held in memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cache/trust/public_key.hpp"
#include "kiln/digest.hpp"
#include "kiln/error.hpp"

namespace kiln::trust {

inline constexpr std::size_t kMaxSignatureFile = std::size_t{16} << 10, kMaxTrustedComment = 4096;
using FileDigest = Bytes<64>;  ///< BLAKE2b-512

/// A signature that is not of this file, not by this key, or no signature at all.
struct BadSignature : Error {
  explicit BadSignature(const std::string& message) : Error(Errc::io, message) {}
};

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
/// Makes a text fit for a terminal: all but printable ASCII is replaced, and the text is
/// cut to `limit` bytes.
std::string printable(std::string_view text, std::size_t limit = 512);

}  // namespace kiln::trust

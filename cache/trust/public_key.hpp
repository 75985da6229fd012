// A public key in minisign's format: its id, its 32 bytes, and the texts that people copy.
//
// Public key file: a comment line, then base64 of
//   "Ed", 8 key id, 32 Ed25519 public key
#pragma once

#include <string>
#include <string_view>

#include "kiln/digest.hpp"

namespace kiln::trust {

inline constexpr std::size_t kMaxKeyFile = std::size_t{4} << 10;

struct PublicKey {
  Bytes<8> id;
  Bytes<32> key;
  /// "RWQf6LRC..."
  std::string text() const;
  /// The text of minisign's file for the key.
  std::string file() const;
  /// The key id as minisign prints it, and as its comments name it.
  std::string id_text() const;
};
/// Reads the key's one line, or the two lines of its file. Throws Error(invalid_argument).
PublicKey parse_public_key(std::string_view text);
/// Returns whether `text` looks like the one line of a key.
bool looks_like_public_key(std::string_view text) noexcept;

/// "4AB3F5B4E5CFA1E5": a key id as minisign prints it.
std::string text_of(const Bytes<8>& key_id);

}  // namespace kiln::trust

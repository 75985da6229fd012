// Secret keys for signing, and their passwords.
#pragma once

#include <optional>
#include <string>

#include "cache/bundle/format.hpp"
#include "cache/trust/secret_key.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

struct SigningFlags {
  std::string key, password_file;
};

/// Reads the secret key file. The password of an encrypted key is the first line of `flags.password_file`,
/// else the terminal asks for it without echo. Throws Error.
trust::SecretKey read_secret_key(const SigningFlags& flags);

struct MadeSignature {
  std::string file, key_id, trusted_comment;
};
Json json_of(const MadeSignature& signature);
/// Writes FILE.minisig for a bundle with this digest. Throws Error(io).
MadeSignature sign_bundle(const trust::SecretKey& key, const std::string& file,
                          const trust::FileDigest& digest, const bundle::Summary& summary);

}  // namespace kiln::cli

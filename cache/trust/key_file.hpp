// Reads the files of secrets: a key to sign with, and the password of that key.
#pragma once

#include <functional>
#include <string>

#include "cache/trust/secret_key.hpp"

namespace kiln::trust {

/// Reads a key from a file. Warns once when others can read or write the file. `shown` names the file in an
/// error instead of `path`: a user may have set the secret itself where its file is wanted, and a log must
/// not show it. Throws Error(io), and what SecretKey::parse throws.
SecretKey read_secret_key(const std::string& path, const std::string& shown,
                          const std::function<Secret()>& password);
/// Reads a password: the first line of a file of at most 1 KiB. Throws Error(io).
Secret read_password(const std::string& path, const std::string& shown);

}  // namespace kiln::trust

// Reads the files of secrets: a key to sign with, and the password of that key.
#pragma once

#include <functional>
#include <string>

#include "cache/trust/secret_key.hpp"

namespace kiln::trust {

/// The key of a file; warns once when others can read or write it. `shown` names the file in an error: who
/// sets the secret itself where its file is wanted shall not read it in a log. Throws Error: io, or as
/// SecretKey::parse.
SecretKey read_secret_key(const std::string& path, const std::string& shown,
                          const std::function<Secret()>& password);
/// A password: the first line of a file of at most 1 KiB. Throws Error(io).
Secret read_password(const std::string& path, const std::string& shown);

}  // namespace kiln::trust

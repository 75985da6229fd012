#include "cache/trust/key_file.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/file.hpp"
#include "base/log.hpp"
#include "kiln/error.hpp"

namespace kiln::trust {
namespace {

constexpr std::size_t kMaxPasswordFile = 1024;

Secret read(const std::string& what, const std::string& path, const std::string& shown, std::size_t limit) {
  auto file = base::read_file(path, limit);
  if (!file)
    throw Error(Errc::io,
                "cannot read the " + what + ' ' + shown + ": " +
                    (errno == EFBIG ? "it is larger than such a file may be" : std::strerror(errno)));
  return Secret(std::move(file->bytes));
}

}  // namespace

SecretKey read_secret_key(const std::string& path, const std::string& shown,
                          const std::function<Secret()>& password) {
  const Secret text = read("secret key", path, shown, kMaxKeyFile);
  struct stat st {};
  if (::stat(path.c_str(), &st) == 0 && (st.st_mode & 077) != 0)
    base::warn_once("mode of " + path,
                    "the secret key '" + path + "' can be read or written by others; chmod 600 it");
  return SecretKey::parse(text.bytes(), password);
}

Secret read_password(const std::string& path, const std::string& shown) {
  const Secret file = read("password file", path, shown, kMaxPasswordFile);
  std::string line = file.bytes().substr(0, file.bytes().find('\n'));
  if (line.ends_with('\r')) line.pop_back();
  return Secret(std::move(line));
}

}  // namespace kiln::trust

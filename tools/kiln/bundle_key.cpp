#include "bundle_key.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <termios.h>

#include <cerrno>
#include <cstring>

#include "base/fd.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "bundle_file.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kMaxPassword = 1024;
constexpr char kInterruptCharacter = 3;

/// No echo while it lives, and Ctrl-C arrives as a character, so that a terminal is never left silent.
class SilentTerminal {
 public:
  explicit SilentTerminal(int fd) : fd_(fd) {
    ::tcgetattr(fd_, &before_);
    termios silent = before_;
    silent.c_lflag &= ~static_cast<tcflag_t>(ECHO | ISIG);
    silent.c_cc[VEOL] = kInterruptCharacter;
    ::tcsetattr(fd_, TCSAFLUSH, &silent);
  }
  SilentTerminal(const SilentTerminal&) = delete;
  SilentTerminal& operator=(const SilentTerminal&) = delete;
  ~SilentTerminal() { ::tcsetattr(fd_, TCSAFLUSH, &before_); }

 private:
  const int fd_;
  termios before_{};
};

bundle::Secret ask_password(const std::string& key) {
  const base::Fd terminal(::open("/dev/tty", O_RDWR | O_CLOEXEC));
  if (!terminal)
    throw Error(
        Errc::invalid_argument,
        "the key '" + key + "' has a password, and there is no terminal to ask for it; use --password-file");
  const std::string prompt = "Password of " + key + ": ";
  std::string out;
  out.reserve(kMaxPassword);
  {
    const SilentTerminal silent(terminal.get());
    if (::write(terminal.get(), prompt.data(), prompt.size()) < 0) return {};
    for (char c; out.size() < kMaxPassword && ::read(terminal.get(), &c, 1) == 1 && c != '\n';) {
      if (c == kInterruptCharacter) throw Interrupted{};
      out += c;
    }
  }
  if (::write(terminal.get(), "\n", 1) < 0) return {};
  return bundle::Secret(std::move(out));
}

bundle::Secret password_of(const SigningFlags& flags) {
  if (flags.password_file.empty()) return ask_password(flags.key);
  const auto content = base::read_file(flags.password_file, kMaxPassword);
  if (!content)
    throw Error(Errc::io,
                "cannot read the password file '" + flags.password_file + "': " + std::strerror(errno));
  bundle::Secret held(std::move(content->bytes));
  std::string line = held.bytes().substr(0, held.bytes().find('\n'));
  if (line.ends_with('\r')) line.pop_back();
  return bundle::Secret(std::move(line));
}

}  // namespace

bundle::SecretKey read_secret_key(const SigningFlags& flags) {
  auto content = base::read_file(flags.key, bundle::kMaxKeyFile);
  if (!content)
    throw Error(Errc::io, "cannot read the secret key '" + flags.key +
                              "': " + (errno == EFBIG ? "it is larger than any" : std::strerror(errno)));
  const bundle::Secret text(std::move(content->bytes));
  struct stat st {};
  if (::stat(flags.key.c_str(), &st) == 0 && (st.st_mode & 077) != 0)
    base::warn("the secret key '" + flags.key + "' can be read or written by others; chmod 600 it");
  try {
    return bundle::SecretKey::parse(text.bytes(), [&] { return password_of(flags); });
  } catch (const Error& error) {
    throw Error(error.code(), "'" + flags.key + "': " + error.what());
  }
}

Json json_of(const MadeSignature& signature) {
  return {
      {"file", signature.file}, {"key_id", signature.key_id}, {"trusted_comment", signature.trusted_comment}};
}

MadeSignature sign_bundle(const bundle::SecretKey& key, const std::string& file,
                          const bundle::FileDigest& digest, const bundle::Summary& summary) {
  MadeSignature out;
  out.file = file + ".minisig";
  out.key_id = key.public_key().id_text();
  out.trusted_comment =
      "kiln bundle, " + counted(summary.entries, "entry", "entries") + ", blake2b:" + summary.digest.hex();
  base::write_file(out.file,
                   key.sign(digest, out.trusted_comment).file("signature by kiln, key " + out.key_id));
  return out;
}

}  // namespace kiln::cli

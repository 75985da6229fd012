#include "tools/kiln/bundle/key.hpp"

#include <fcntl.h>
#include <termios.h>

#include "base/fd.hpp"
#include "base/file.hpp"
#include "cache/trust/key_file.hpp"
#include "tools/kiln/bundle/file.hpp"
#include "tools/kiln/cli/interrupt.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kMaxPassword = 1024;  // longest password that can be typed
constexpr char kInterruptCharacter = 3;

/// Turns off echo while it lives. Ctrl-C arrives as a character, so that a terminal is never
/// left without echo.
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

trust::Secret ask_password(const std::string& key) {
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
  return trust::Secret(std::move(out));
}

}  // namespace

trust::SecretKey read_secret_key(const SigningFlags& flags) {
  try {
    return trust::read_secret_key(flags.key, '\'' + flags.key + '\'', [&] {
      return flags.password_file.empty()
                 ? ask_password(flags.key)
                 : trust::read_password(flags.password_file, '\'' + flags.password_file + '\'');
    });
  } catch (const Error& error) {
    if (error.code() == Errc::io) throw;  // such a message already names the file
    throw Error(error.code(), "'" + flags.key + "': " + error.what());
  }
}

Json json_of(const MadeSignature& signature) {
  return {
      {"file", signature.file}, {"key_id", signature.key_id}, {"trusted_comment", signature.trusted_comment}};
}

MadeSignature sign_bundle(const trust::SecretKey& key, const std::string& file,
                          const trust::FileDigest& digest, const bundle::Summary& summary) {
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

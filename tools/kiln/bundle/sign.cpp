// kiln bundle sign, kiln bundle keygen: Ed25519 in minisign's format.
#include "tools/kiln/bundle/sign.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cache/bundle/reader.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/bundle/file.hpp"
#include "tools/kiln/bundle/input.hpp"
#include "tools/kiln/bundle/key.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/interrupt.hpp"
#include "tools/kiln/store/bundled_entry.hpp"

namespace kiln::cli {
namespace {

struct SignArguments {
  std::string file;
  SigningFlags signing;
};

/// Reads the whole bundle first, so that only a bundle that an import accepts is signed.
int sign(const Context& context, const SignArguments& arguments) try {
  const trust::SecretKey key = read_secret_key(arguments.signing);
  const BundleInput input(arguments.file);
  if (!input.rereadable() || arguments.file == "-")
    throw Error(
        Errc::invalid_argument,
        input.name() + ": the signature is written beside the bundle; expected a regular file's path");
  trust::Blake2b hash(64);
  bundle::Reader reader(
      [&, in = input.reader()](char* out, std::size_t size) {
        const std::size_t got = in(out, size);
        hash.add({out, got});
        return got;
      },
      bundle::Limits{});
  while (const auto entry = reader.next()) check_entry(*entry);
  const MadeSignature made = sign_bundle(key, arguments.file, hash.digest<64>(), reader.summary());
  if (context.json)
    print_json({{"schema", context.schema()},
                {"file", arguments.file},
                {"entries", reader.summary().entries},
                {"content_digest", reader.summary().digest.hex()},
                {"signature", json_of(made)}});
  else
    print_paragraph("Signed with key " + made.key_id + ": " + made.file);
  return kDone;
} catch (const Interrupted&) {
  return kInterrupted;
} catch (const Error&) {
  return report(context, fault_of_current(name_of_bundle(arguments.file)));
}

bool occupied(const std::string& path) {
  struct stat st {};
  return ::lstat(path.c_str(), &st) == 0;
}

void create(const std::string& path, std::string_view bytes, mode_t mode) {
  const base::Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  const bool written = fd &&
                       ::write(fd.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) &&
                       ::fsync(fd.get()) == 0;
  if (written) return;
  const int error = errno;
  if (fd) ::unlink(path.c_str());
  throw Error(Errc::io, "cannot create '" + path + "': " + std::strerror(error));
}

int keygen(const Context& context, const std::string& prefix) {
  const std::string secret = prefix + ".key", open = prefix + ".pub";
  for (const std::string& path : {secret, open})
    if (occupied(path))
      throw Error(
          Errc::io,
          "'" + path + "' is there already, and an overwritten key would be lost; choose another prefix");
  const trust::SecretKey key = trust::SecretKey::generate();
  create(secret, key.file().bytes(), 0600);
  try {
    create(open, key.public_key().file(), 0644);
  } catch (const Error&) {
    ::unlink(secret.c_str());
    throw;
  }
  if (context.json) {
    print_json({{"schema", context.schema()},
                {"secret_key_file", secret},
                {"public_key_file", open},
                {"key_id", key.public_key().id_text()},
                {"public_key", key.public_key().text()},
                {"encrypted", false}});
    return kDone;
  }
  print_definition(secret, "the secret key. It has no password: everybody who can read the file can sign",
                   24);
  print_definition(open, "the public key, for --require-signature: " + key.public_key().text(), 24);
  return kDone;
}

}  // namespace

void add_bundle_sign(Command bundle, Context& context) {
  const auto arguments = std::make_shared<SignArguments>();
  const Command sub = context.add_command(bundle, "sign", "Sign a bundle with an Ed25519 key",
                                          [&context, arguments] { return sign(context, *arguments); });
  sub.option("file", arguments->file, "The bundle").type_name("FILE").required();
  sub.option("--key", arguments->signing.key, "A secret key of 'kiln bundle keygen' or minisign -G")
      .type_name("FILE.key")
      .required();
  sub.option("--password-file", arguments->signing.password_file,
             "File whose first line is the key's password; default: asked for on the terminal")
      .not_empty()
      .type_name("FILE");
  sub.footer(
      "Writes FILE.minisig. 'kiln bundle verify --require-signature KEY.pub' and minisign -V accept it.\n"
      "The whole bundle is checked first; a damaged bundle is not signed.\n"
      "Exit status: 0 signed, 1 failed, 2 usage or a wrong password, 4 the bundle is damaged.");
}

void add_bundle_keygen(Command bundle, Context& context) {
  const auto prefix = std::make_shared<std::string>();
  const Command sub = context.add_command(bundle, "keygen", "Make a key pair for signing bundles",
                                          [&context, prefix] { return keygen(context, *prefix); });
  sub.option("prefix", *prefix, "Path before the endings: writes PREFIX.key and PREFIX.pub")
      .type_name("PREFIX")
      .required();
  sub.footer(
      "The keys are in minisign's format. The secret key has no password. 'minisign -G' makes a key with a\n"
      "password, and kiln signs with it, too. Existing files are never overwritten.");
}

}  // namespace kiln::cli

#include "tools/kiln/bundle/input.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/file.hpp"
#include "runtime/config/config.hpp"
#include "tools/kiln/cli/command.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/errors.hpp"

namespace kiln::cli {
namespace {

std::string read_small(const std::string& path, std::size_t limit, const char* what) {
  const auto content = base::read_file(path, limit);
  if (content) return content->bytes;
  const std::string why =
      errno == EFBIG ? "it has more than " + std::to_string(limit) + " bytes" : std::strerror(errno);
  throw Error(Errc::io, std::string("cannot read the ") + what + " '" + path + "': " + why);
}

bool exists(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0;
}

}  // namespace

bundle::Limits BundleFlags::limits() const {
  bundle::Limits out;
  if (max_bytes.empty()) return out;
  const auto bytes = runtime::parse_size(max_bytes);
  if (!bytes)
    throw Error(
        Errc::invalid_argument,
        "--max-bytes '" + max_bytes + "': expected bytes, or a number with K, M, G or T (powers of 1024)");
  out.content = *bytes;
  return out;
}

void add_bundle_flags(Command sub, BundleFlags& flags) {
  sub.option("file", flags.file, "The bundle; - is stdin").type_name("FILE").required();
  sub.option("--require-signature", flags.key,
             "Refuse the bundle unless this public key signed it: the key's text, or a file that holds it")
      .not_empty()
      .type_name("KEY");
  sub.option("--signature", flags.signature, "Signature of the bundle; default: FILE.minisig")
      .not_empty()
      .type_name("FILE.minisig");
  sub.option("--max-bytes", flags.max_bytes,
             "Refuse the bundle when its content, decompressed, is larger; default: 64G")
      .not_empty()
      .type_name("SIZE");
}

std::string name_of_bundle(const std::string& path) { return path == "-" ? "stdin" : '\'' + path + '\''; }

trust::PublicKey read_public_key(const std::string& text_or_path) {
  if (trust::looks_like_public_key(text_or_path)) return trust::parse_public_key(text_or_path);
  try {
    return trust::parse_public_key(read_small(text_or_path, trust::kMaxKeyFile, "public key"));
  } catch (const Error& error) {
    if (error.code() != Errc::invalid_argument) throw;
    throw Error(error.code(), "'" + text_or_path + "': " + error.what());
  }
}

Json json_of(const SignatureState& state) {
  static constexpr const char* names[] = {"absent", "not_checked", "verified"};
  const bool verified = state.checked == SignatureState::Checked::verified;
  return {{"state", names[static_cast<int>(state.checked)]},
          {"file", state.file.empty() ? Json(nullptr) : Json(state.file)},
          {"key_id", verified ? Json(state.key_id) : Json(nullptr)},
          {"trusted_comment", verified ? Json(state.trusted_comment) : Json(nullptr)}};
}

std::string text_of(const SignatureState& state) {
  switch (state.checked) {
    case SignatureState::Checked::verified:
      return "Signature by key " + state.key_id + " verified: " + trust::printable(state.trusted_comment);
    case SignatureState::Checked::not_checked:
      return "Signature not checked: there is " + state.file + ", but --require-signature KEY was not given.";
    case SignatureState::Checked::absent:
      break;
  }
  return "Signature not checked: no signature was found, and --require-signature KEY was not given.";
}

OpenBundle::OpenBundle(const BundleFlags& flags) : input_(flags.file) {
  const bundle::Limits limits = flags.limits();
  signature_.file = flags.signature;
  if (signature_.file.empty() && flags.file != "-") signature_.file = flags.file + ".minisig";
  base::Read in;
  if (!flags.key.empty()) {
    in = verified_reader(flags, limits);
  } else {
    signature_.checked = !signature_.file.empty() && exists(signature_.file)
                             ? SignatureState::Checked::not_checked
                             : SignatureState::Checked::absent;
    if (signature_.checked == SignatureState::Checked::absent) signature_.file.clear();
    in = input_.reader();
  }
  reader_.emplace(
      [this, in = std::move(in)](char* out, std::size_t size) {
        const std::size_t got = in(out, size);
        read_ += got;
        return got;
      },
      limits);
}

/// A user who may write the file can change it between the two passes. The second pass therefore returns only
/// bytes that the first pass has seen.
base::Read OpenBundle::verified_reader(const BundleFlags& flags, const bundle::Limits& limits) {
  const trust::PublicKey key = read_public_key(flags.key);
  if (!input_.rereadable())
    throw Error(Errc::invalid_argument,
                input_.name() +
                    " is not a regular file, and --require-signature reads the bundle twice; name a file");
  if (signature_.file.empty())
    throw Error(Errc::invalid_argument,
                "a bundle from stdin has no signature file beside it; name its signature with "
                "--signature FILE.minisig");
  if (!exists(signature_.file))
    throw trust::BadSignature("--require-signature needs the signature file '" + signature_.file +
                              "', which does not exist");
  const trust::Signature signature =
      trust::parse_signature(read_small(signature_.file, trust::kMaxSignatureFile, "signature"));
  // Compressed content is hardly ever larger than what it decompresses to.
  bundle::FirstPass seen =
      bundle::first_pass(input_.reader(), limits.content + limits.content / 64 + (std::uint64_t{1} << 20));
  trust::verify(signature, key, seen.digest);
  signature_.checked = SignatureState::Checked::verified;
  signature_.key_id = key.id_text();
  signature_.trusted_comment = signature.trusted_comment;
  second_.emplace(input_.reader(), std::move(seen));
  return [this](char* out, std::size_t size) { return second_->read(out, size); };
}

std::size_t OpenBundle::percent() const noexcept {
  return input_.size() > 0
             ? static_cast<std::size_t>(std::min<std::uint64_t>(100, read_ * 100 / input_.size()))
             : 0;
}

BundleFault fault_of_current(const std::string& name) {
  try {
    throw;
  } catch (const bundle::Refused& error) {
    return {true, error.code(), name + ": " + error.what()};
  } catch (const trust::BadSignature& error) {
    return {true, error.code(), name + ": " + error.what()};
  } catch (const Error& error) {
    const std::string message = error.what();
    return {false, error.code(), message.starts_with("it ") ? name + ": " + message : message};
  }
}

int report(const Context& context, const BundleFault& fault) {
  return fault.damage ? report_damage(context, fault.message) : report(context, fault.code, fault.message);
}

}  // namespace kiln::cli

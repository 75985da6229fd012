#include "cache/trust/secret_key.hpp"

#include <sodium.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.hpp"
#include "base/wire.hpp"
#include "cache/trust/base64.hpp"
#include "cache/trust/blake2b.hpp"
#include "cache/trust/ed25519.hpp"
#include "cache/trust/lines.hpp"
#include "cache/trust/sodium.hpp"

namespace kiln::trust {
namespace {

using base::view;

constexpr std::string_view kKind = "Ed", kScrypt = "Sc", kChecksum = "B2", kNone{"\0\0", 2};
constexpr std::size_t kSalt = 32, kKey = ed25519::kSecretBytes, kSealed = 8 + kKey + 32;
constexpr std::size_t kFileBytes = 2 + 2 + 2 + kSalt + 8 + 8 + kSealed;
static_assert(kSalt == crypto_pwhash_scryptsalsa208sha256_SALTBYTES);
/// The most that minisign asks for. A file that states more would take the machine's memory.
constexpr std::uint64_t kMostOperations = crypto_pwhash_scryptsalsa208sha256_OPSLIMIT_SENSITIVE,
                        kMostMemory = crypto_pwhash_scryptsalsa208sha256_MEMLIMIT_SENSITIVE;

[[noreturn]] void no_key(const std::string& why) {
  throw Error(Errc::invalid_argument, "it is not a minisign secret key: " + why);
}

Bytes<32> checksum(std::string_view id, std::string_view key) {
  Blake2b hash(32);
  hash.add(kKind), hash.add(id), hash.add(key);
  return hash.digest<32>();
}

/// Returns the bytes with which the sealed part is XORed.
Secret pad_of(const Secret& password, std::string_view salt, std::uint64_t operations, std::uint64_t memory) {
  if (operations > kMostOperations || memory > kMostMemory)
    no_key("deriving the key from its password takes " + std::to_string(operations) + " operations and " +
           std::to_string(memory) + " bytes of memory; at most " + std::to_string(kMostOperations) + " and " +
           std::to_string(kMostMemory) + " are allowed");
  std::string pad(kSealed, '\0');
  if (::crypto_pwhash_scryptsalsa208sha256(reinterpret_cast<unsigned char*>(pad.data()), pad.size(),
                                           password.bytes().data(), password.bytes().size(), raw(salt),
                                           operations, memory) != 0)
    throw Error(Errc::io, "not enough memory to derive the key from its password: that takes " +
                              std::to_string(memory) + " bytes");
  return Secret(std::move(pad));
}

}  // namespace

/// A move copies a short text, and leaves its bytes in `other`.
Secret::Secret(Secret&& other) noexcept : bytes_(std::move(other.bytes_)) { other.wipe(); }
Secret& Secret::operator=(Secret&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}
Secret::~Secret() { wipe(); }
/// Covers the whole buffer: a move or an exchange leaves bytes beyond the size.
void Secret::wipe() noexcept {
  bytes_.resize(bytes_.capacity());  // allocates nothing
  trust::wipe(bytes_.data(), bytes_.size());
  bytes_.clear();
}

SecretKey SecretKey::generate() {
  need_sodium();
  SecretKey out;
  out.key_ = Secret(ed25519::generate());
  ::randombytes_buf(out.id_.bytes.data(), out.id_.bytes.size());
  return out;
}

SecretKey SecretKey::parse(std::string_view text, const std::function<Secret()>& password) {
  need_sodium();
  if (text.size() > kMaxKeyFile) no_key("too long");
  if (!text.starts_with(kUntrusted)) no_key("it does not begin with '" + std::string(kUntrusted) + "'");
  take_line(text);
  const Secret held(from_base64(take_line(text), kFileBytes).value_or(std::string()));
  if (held.bytes().size() != kFileBytes || !text.empty())
    no_key("not base64 of 158 bytes below a comment line");
  base::Reader in(held.bytes());
  if (in.take(2) != kKind) no_key("not an Ed25519 key");
  const std::string_view kdf = in.take(2);
  if (kdf != kScrypt && kdf != kNone) no_key("an unknown way to derive a key from a password");
  if (in.take(2) != kChecksum) no_key("an unknown checksum");
  const std::string_view salt = in.take(kSalt);
  const auto operations = in.number<std::uint64_t>(), memory = in.number<std::uint64_t>();
  std::string opened(in.take(kSealed));
  if (kdf == kScrypt) {
    // The limits are checked first, so that nobody types a password for a key that is refused.
    if (operations > kMostOperations || memory > kMostMemory) pad_of(Secret(), salt, operations, memory);
    const Secret pad = pad_of(password(), salt, operations, memory);
    for (std::size_t i = 0; i < kSealed; ++i) opened[i] = static_cast<char>(opened[i] ^ pad.bytes()[i]);
  }
  const Secret sealed(std::move(opened));
  const std::string_view all = sealed.bytes();
  const Bytes<32> sum = checksum(all.substr(0, 8), all.substr(8, kKey));
  const char* stated = all.data() + 8 + kKey;
  // minisign itself writes no checksum into a key without a password.
  const bool none = kdf == kNone && ::sodium_is_zero(raw({stated, 32}), 32) == 1;
  if (!none && ::sodium_memcmp(sum.bytes.data(), stated, 32) != 0) {
    if (kdf == kScrypt) throw Error(Errc::invalid_argument, "the password of the key is wrong");
    no_key("its checksum does not match");
  }
  if (!ed25519::halves_agree(all.substr(8, kKey))) no_key("its two halves do not belong to one key");
  SecretKey out;
  std::memcpy(out.id_.bytes.data(), all.data(), 8);
  out.key_ = Secret(std::string(all.substr(8, kKey)));
  return out;
}

PublicKey SecretKey::public_key() const { return {id_, ed25519::public_half(key_.bytes())}; }

Signature SecretKey::sign(const FileDigest& digest, const std::string& trusted_comment) const {
  Signature out;
  out.key_id = id_;
  out.trusted_comment = trusted_comment;
  out.signature = ed25519::sign(view(digest), key_.bytes());
  out.global = ed25519::sign(std::string(view(out.signature)).append(trusted_comment), key_.bytes());
  return out;
}

Secret SecretKey::file() const {
  std::string bytes = std::string(kKind).append(kNone).append(kChecksum);
  bytes.reserve(kFileBytes);
  bytes.append(kSalt + 8 + 8, '\0');
  bytes.append(view(id_)).append(key_.bytes()).append(view(checksum(view(id_), key_.bytes())));
  const Secret held(std::move(bytes));
  return Secret(std::string(kUntrusted) + "minisign secret key " + text_of(id_) + '\n' +
                to_base64(held.bytes()) + '\n');
}

}  // namespace kiln::trust

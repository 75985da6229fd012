// The parsers of signatures, public keys and secret keys. Accepted input is written again without change,
// and nothing verifies that was not signed.
#include "cache/trust/minisign.hpp"

#include "cache/trust/secret_key.hpp"
#include "tests/fuzz/target.hpp"

using namespace kiln;
using namespace kiln::trust;

namespace {

template <class Body>
void refusal_allowed(Body&& body) {
  try {
    body();
  } catch (const Error&) {
  }
}

const PublicKey& some_key() {
  static const PublicKey key = SecretKey::generate().public_key();
  return key;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::view(data, size);
  refusal_allowed([&] {
    const Signature signature = parse_signature(text);
    fuzz::expect(signature.trusted_comment.size() <= kMaxTrustedComment, "a bounded comment");
    const Signature again = parse_signature(signature.file("c"));
    fuzz::expect(again.signature == signature.signature && again.global == signature.global &&
                     again.trusted_comment == signature.trusted_comment,
                 "a signature is read as it was written");
    PublicKey key = some_key();
    key.id = signature.key_id;
    bool verified = true;
    try {
      verify(signature, key, FileDigest{});
    } catch (const BadSignature&) {
      verified = false;
    }
    fuzz::expect(!verified, "nobody signed this");
  });
  refusal_allowed([&] {
    const PublicKey key = parse_public_key(text);
    fuzz::expect(parse_public_key(key.file()).key == key.key, "a key is read as it was written");
  });
  refusal_allowed([&] {
    // A key under a password costs a second, so this refuses it.
    const SecretKey key = SecretKey::parse(text, []() -> Secret { throw Error(Errc::io, "no password"); });
    const SecretKey again = SecretKey::parse(key.file().bytes(), {});
    fuzz::expect(again.public_key().key == key.public_key().key, "a secret key is read as it was written");
  });
  for (const char c : printable(text)) fuzz::expect(c >= 0x20 && c < 0x7f, "no control character is printed");
  return 0;
}

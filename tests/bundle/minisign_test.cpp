// Keys and signatures in minisign's format: made, read, refused. tests/tools has tests with minisign itself.
#include "cache/trust/minisign.hpp"

#include <gtest/gtest.h>
#include <sodium.h>

#include <functional>

#include "base/wire.hpp"
#include "cache/trust/base64.hpp"
#include "cache/trust/blake2b.hpp"
#include "cache/trust/secret_key.hpp"

using namespace kiln;
using namespace kiln::trust;

namespace {

const std::function<Secret()> kNoPassword = [] {
  ADD_FAILURE() << "was asked for a password";
  return Secret();
};

/// A secret key file of minisign with a password, and scrypt with these limits.
std::string sealed_file(const SecretKey& key, const std::string& password, std::uint64_t operations,
                        std::uint64_t memory, bool really = true) {
  const std::string plain_text = key.file().bytes();
  const std::string line = plain_text.substr(plain_text.find('\n') + 1);
  std::string bytes = *from_base64(line.substr(0, line.size() - 1), 158);
  bytes.replace(2, 2, "Sc");
  const std::string salt(32, 's');
  base::Writer limits;
  limits.number(operations).number(memory);
  bytes.replace(6, 48, salt + limits.str());
  std::string pad(104, '\0');
  if (really) {
    EXPECT_EQ(::crypto_pwhash_scryptsalsa208sha256(
                  reinterpret_cast<unsigned char*>(pad.data()), pad.size(), password.data(), password.size(),
                  reinterpret_cast<const unsigned char*>(salt.data()), operations, memory),
              0);
  }
  for (std::size_t i = 0; i < pad.size(); ++i) bytes[54 + i] = static_cast<char>(bytes[54 + i] ^ pad[i]);
  return "untrusted comment: sealed\n" + to_base64(bytes) + '\n';
}

struct Signed {
  SecretKey key = SecretKey::generate();
  PublicKey open = key.public_key();
  FileDigest digest = blake2b<64>("a bundle");
  Signature signature = key.sign(digest, "24 entries");
};

}  // namespace

TEST(Minisign, WhatIsSignedIsVerified) {
  const Signed made;
  const Signature read = parse_signature(made.signature.file("by a test"));
  EXPECT_EQ(read.trusted_comment, "24 entries");
  verify(read, made.open, made.digest);
}

TEST(Minisign, KeysAreReadBack) {
  const Signed made;
  for (const std::string& text : {made.open.text(), made.open.file(), made.open.text() + "\r\n"}) {
    const PublicKey read = parse_public_key(text);
    EXPECT_EQ(read.id, made.open.id);
    EXPECT_EQ(read.key, made.open.key);
  }
  const SecretKey again = SecretKey::parse(made.key.file().bytes(), kNoPassword);
  EXPECT_EQ(again.public_key().key, made.open.key);
}

TEST(Minisign, ASecretKeyInPlaceOfAPublicOneIsRefusedByName) {
  const Signed made;
  for (const std::string& text :
       {std::string(made.key.file().bytes()), sealed_file(made.key, "open sesame", 32768, 16 << 20)}) {
    try {
      parse_public_key(text);
      FAIL() << "was read";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("this is a secret key; give the public key"),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(Minisign, EveryChangedCharacterOfASignatureIsRefused) {
  const Signed made;
  const std::string text = made.signature.file("c");
  const std::size_t untrusted = text.find('\n');
  for (std::size_t at = untrusted + 1; at < text.size(); ++at) {
    for (const char other : {static_cast<char>(text[at] ^ 1), 'A', '\n'}) {
      if (other == text[at]) continue;
      std::string changed = text;
      changed[at] = other;
      EXPECT_THROW(verify(parse_signature(changed), made.open, made.digest), BadSignature) << at << " in\n"
                                                                                           << changed;
    }
  }
}

TEST(Minisign, AnotherFileKeyOrCommentIsRefused) {
  const Signed made, other;
  try {
    verify(made.signature, made.open, blake2b<64>("another"));
    FAIL() << "was verified";
  } catch (const BadSignature& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("the file was changed after it was signed"))
        << error.what();
  }
  EXPECT_THROW(verify(made.signature, other.open, made.digest), BadSignature);
  PublicKey same_id = other.open;
  same_id.id = made.open.id;
  EXPECT_THROW(verify(made.signature, same_id, made.digest), BadSignature);
  Signature commented = made.signature;
  commented.trusted_comment = "25 entries";
  EXPECT_THROW(verify(commented, made.open, made.digest), BadSignature);
}

TEST(Minisign, TheFormerKindIsRefusedAndSaysWhatToDo) {
  const Signed made;
  std::string text = made.signature.file("c");
  const std::size_t line = text.find('\n') + 1;
  std::string bytes = *from_base64(text.substr(line, 100), 74);
  bytes.replace(0, 2, "Ed");
  text.replace(line, 100, to_base64(bytes));
  try {
    parse_signature(text);
    FAIL() << "was read";
  } catch (const BadSignature& error) {
    EXPECT_NE(std::string(error.what()).find("former kind"), std::string::npos) << error.what();
  }
}

TEST(Minisign, WhatIsTooLongIsRefused) {
  const Signed made;
  EXPECT_THROW(parse_signature(std::string(kMaxSignatureFile + 1, 'x')), BadSignature);
  EXPECT_THROW(parse_public_key(std::string(kMaxKeyFile + 1, 'x')), Error);
  EXPECT_THROW(SecretKey::parse(std::string(kMaxKeyFile + 1, 'x'), kNoPassword), Error);
  EXPECT_THROW(parse_signature(made.key.sign(made.digest, std::string(5000, 'x')).file("c")), BadSignature);
}

TEST(Minisign, ASealedKeyOpensWithItsPasswordOnly) {
  const Signed made;
  const std::string file = sealed_file(made.key, "open sesame", 32768, 16 << 20);
  EXPECT_EQ(SecretKey::parse(file, [] { return Secret("open sesame"); }).public_key().key, made.open.key);
  EXPECT_THROW(SecretKey::parse(file, [] { return Secret("open barley"); }), Error);
}

TEST(Minisign, AMovedSecretLeavesNothingBehind) {
  for (const std::string& text : {std::string("sesame"), std::string(1000, 'x')}) {
    Secret from(text);
    const char* const inside = reinterpret_cast<const char*>(&from);
    const Secret to(std::move(from));
    EXPECT_EQ(to.bytes(), text);
    EXPECT_EQ(std::string_view(inside, sizeof from).find(text.substr(0, 6)), std::string_view::npos) << text;
  }
}

TEST(Minisign, AKeyFileCannotAskForAllMemory) {
  const Signed made;
  const std::uint64_t most_operations = 33554432, most_memory = 1073741824;
  for (const auto& [operations, memory] :
       {std::pair(most_operations + 1, most_memory), std::pair(most_operations, most_memory + 1),
        std::pair(~std::uint64_t{0}, ~std::uint64_t{0})})
    EXPECT_THROW(SecretKey::parse(sealed_file(made.key, "x", operations, memory, false), kNoPassword), Error);
}

TEST(Minisign, DamagedSecretKeysAreRefused) {
  const std::string file = SecretKey::generate().file().bytes();
  const std::size_t line = file.find('\n') + 1;
  for (std::size_t at = line; at + 1 < file.size(); ++at) {
    const std::size_t byte = (at - line) * 3 / 4;
    if (byte >= 6 && byte < 54) continue;  // salt and limits are not used without a password
    std::string changed = file;
    changed[at] = changed[at] == 'A' ? 'Z' : 'A';
    if (changed == file) continue;
    EXPECT_THROW(SecretKey::parse(changed, [] { return Secret("x"); }), Error) << at;
  }
}

TEST(Minisign, AKeyOfItsOwnWithoutPasswordHasNoChecksumAndMustStillBeOneKey) {
  const SecretKey key = SecretKey::generate();
  const std::string file = key.file().bytes();
  const std::size_t line = file.find('\n') + 1;
  std::string bytes = *from_base64(file.substr(line, file.size() - line - 1), 158);
  bytes.replace(126, 32, std::string(32, '\0'));
  EXPECT_EQ(SecretKey::parse(file.substr(0, line) + to_base64(bytes), kNoPassword).public_key().key,
            key.public_key().key);
  bytes[70] = static_cast<char>(bytes[70] ^ 1);
  EXPECT_THROW(SecretKey::parse(file.substr(0, line) + to_base64(bytes), kNoPassword), Error);
}

TEST(Minisign, ThePrintableFormOfACommentHasNoEscapes) {
  EXPECT_EQ(printable("a\033[31mb\r\n\x7f\xc3\xa9"), "a?[31mb?????");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
}

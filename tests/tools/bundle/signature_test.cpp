// Signed bundles: signed by kiln and by minisign, required, tampered with, or rewritten during an import.
#include <sys/stat.h>

#include <csignal>

#include "support/nightly.hpp"
#include "support/places.hpp"
#include "tests/support/other_user.hpp"
#include "tools/bundle/fixture.hpp"

using namespace kiln;
using namespace kiln::test;
using namespace kiln::testing;

namespace {

struct BundleSigned : BundleCommand {
  void SetUp() override {
    put(0, 3);
    ASSERT_EQ(kiln({"bundle", "keygen", path("k")}).status, 0);
    const Finished done =
        kiln({"bundle", "export", path("a.kb"), "--all", "--sign", path("k.key"), "--json"});
    ASSERT_EQ(done.status, 0) << done.err;
  }
  int required(const std::string& key, Arguments more = {}) {
    more.insert(more.begin(), {"--require-signature", key});
    return import(path("a.kb"), path("other"), more).status;
  }
  int run(const std::string& command) const { return ::system((command + " >/dev/null 2>&1").c_str()); }
  bool has_minisign() const { return run("minisign -v") == 0; }
};

#define NEEDS_MINISIGN() \
  if (!has_minisign()) GTEST_SKIP() << "there is no minisign here"

}  // namespace

TEST_F(BundleSigned, IsImportedWithTheKeyAsFileAndAsText) {
  EXPECT_EQ(required(path("k.pub")), 0);
  const std::string file = bytes_of("k.pub");
  EXPECT_EQ(required(file.substr(file.find("RW"), 56)), 0);
  EXPECT_EQ(entries_in(path("other")), 3u);
}

TEST_F(BundleSigned, AnEmptyKeyOrLayerIsNotTakenForNone) {
  EXPECT_EQ(required(""), 2);
  EXPECT_EQ(import(path("a.kb"), path("other"), {"--require-signature="}).status, 2);
  EXPECT_EQ(import(path("a.kb"), path("other"), {"--layer", ""}).status, 2);
  EXPECT_FALSE(exists(path("other")));
  EXPECT_EQ(kiln({"bundle", "verify", path("a.kb"), "--require-signature", ""}).status, 2);
  EXPECT_EQ(kiln({"bundle", "export", path("b.kb"), "--all", "--sign", ""}).status, 2);
  EXPECT_FALSE(exists(path("b.kb")));
  EXPECT_EQ(kiln({"prewarm", "--layer", ""}).status, 2);
}

TEST_F(BundleSigned, WhatAnImportWouldRefuseIsNotSigned) {
  cache::Record lie = Made(1).record();
  lie.image = Made(2).image;
  write_bundle("lie.kb", {lie});
  const Finished done = kiln({"bundle", "sign", path("lie.kb"), "--key", path("k.key")});
  EXPECT_EQ(done.status, 4) << done.err;
  EXPECT_FALSE(exists(path("lie.kb.minisig")));
}

TEST_F(BundleSigned, StdinIsNotSignedEvenWhenItIsAFile) {
  const std::string there = "cd " + path("") + " && " + places::kCommand;
  ASSERT_EQ(run(there + " bundle verify - < a.kb"), 0);
  EXPECT_NE(run(there + " bundle sign - --key k.key < a.kb"), 0);
  EXPECT_FALSE(exists(path("-.minisig")));
}

TEST_F(BundleSigned, SaysWhatWasSignedWithoutATime) {
  const auto json =
      kiln({"bundle", "verify", path("a.kb"), "--require-signature", path("k.pub"), "--json"}).json();
  EXPECT_EQ(json["signature"]["state"], "verified");
  EXPECT_EQ(json["signature"]["trusted_comment"],
            "kiln bundle, 3 entries, blake2b:" + json["content_digest"].get<std::string>());
}

TEST_F(BundleSigned, AnUnrequiredSignatureIsNotTrustedAndSaysSo) {
  write("a.kb.minisig", "nonsense");
  const Finished done = kiln({"bundle", "import", path("a.kb"), "--cache-dir", path("other")});
  EXPECT_EQ(done.status, 0);
  EXPECT_NE(done.out.find("Signature not checked"), std::string::npos) << done.out;
}

TEST_F(BundleSigned, TheSameEntriesAndKeyGiveTheSameSignature) {
  const std::string before = bytes_of("a.kb.minisig");
  ASSERT_EQ(kiln({"bundle", "sign", path("a.kb"), "--key", path("k.key")}).status, 0);
  EXPECT_EQ(bytes_of("a.kb.minisig"), before);
}

TEST_F(BundleSigned, AFlippedBitAnywhereImportsNothing) {
  for (const char* name : {"a.kb", "a.kb.minisig"}) {
    const std::string whole = bytes_of(name);
    const std::size_t first = name == std::string("a.kb") ? 0 : whole.find('\n') + 1;
    const std::size_t step = std::max<std::size_t>(1, (whole.size() - first) / 40);
    for (std::size_t at = first; at < whole.size(); at += step) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ 2);
      write(name, changed);
      EXPECT_EQ(required(path("k.pub")), 4) << name << " at " << at;
      EXPECT_FALSE(exists(path("other"))) << name << " at " << at;
    }
    write(name, whole);
  }
  EXPECT_EQ(required(path("k.pub")), 0);
}

TEST_F(BundleSigned, AnotherKeyAMissingSignatureOrATruncatedFileImportsNothing) {
  ASSERT_EQ(kiln({"bundle", "keygen", path("other_key")}).status, 0);
  EXPECT_EQ(required(path("other_key.pub")), 4);
  EXPECT_EQ(required(path("k.pub"), {"--signature", path("absent.minisig")}), 4);
  write("a.kb", bytes_of("a.kb").substr(0, 100));
  EXPECT_EQ(required(path("k.pub")), 4);
  EXPECT_FALSE(exists(path("other")));
}

TEST_F(BundleSigned, APipeCannotBeReadTwice) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const base::Fd both(::open(path("pipe").c_str(), O_RDWR | O_CLOEXEC));
  const Finished done = import(path("pipe"), path("other"), {"--require-signature", path("k.pub")});
  EXPECT_EQ(done.status, 2);
  EXPECT_NE(done.err.find("is not a regular file"), std::string::npos) << done.err;
}

TEST_F(BundleSigned, AFileThatIsRewrittenAfterItsSignatureWasVerifiedImportsNothing) {
  // Other entries, as valid as the signed ones: only the signature tells them apart.
  write_bundle("b.kb", {Made(77).record(), Made(78).record()});
  // The first pass takes three reads of a small file; the process stops itself before the fourth.
  const auto running = start({"bundle", "import", path("a.kb"), "--require-signature", path("k.pub"),
                              "--cache-dir", path("other"), "--json"},
                             {{"LD_PRELOAD", places::kFaultLibrary}, {"FAULT_RULES", "pread@a.kb:4:stop"}});
  const std::string stat = "/proc/" + std::to_string(running->pid()) + "/stat";
  ASSERT_TRUE(base::poll_until(cache::test::soon(),
                               [&] { return base::read_proc(stat).find(") T ") != std::string::npos; }));
  const std::string bytes = bytes_of("b.kb");
  const base::Fd fd(::open(path("a.kb").c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  ASSERT_EQ(::write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  running->send(SIGCONT);
  const Finished done = running->wait();
  EXPECT_EQ(done.status, 4);
  EXPECT_NE(done.err.find("changed after its signature was verified"), std::string::npos) << done.err;
  EXPECT_EQ(entries_in(path("other")), 0u);
}

TEST_F(BundleSigned, ACommentCannotWriteToTheTerminal) {
  const trust::SecretKey key = trust::SecretKey::parse(bytes_of("k.key"), {});
  write("a.kb.minisig", key.sign(trust::blake2b<64>(bytes_of("a.kb")), "\033]0;owned\a\033[2J").file("u"));
  const Finished done = kiln({"bundle", "verify", path("a.kb"), "--require-signature", path("k.pub")});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(done.out.find('\033'), std::string::npos);
}

TEST_F(BundleSigned, AStaleSignatureIsPointedOut) {
  put(5, 6);
  const Finished done = kiln({"bundle", "export", path("a.kb"), "--all"});
  EXPECT_EQ(done.status, 0);
  EXPECT_NE(done.err.find("sign again"), std::string::npos) << done.err;
  EXPECT_EQ(required(path("k.pub")), 4);
}

TEST_F(BundleSigned, KeysAreMadeForTheirOwnerAndNeverOverwritten) {
  EXPECT_EQ(mode_of(path("k.key")), "0600");
  const std::string before = bytes_of("k.key");
  EXPECT_EQ(kiln({"bundle", "keygen", path("k")}).status, 1);
  EXPECT_EQ(bytes_of("k.key"), before);
  ::unlink(path("k.key").c_str());
  EXPECT_EQ(kiln({"bundle", "keygen", path("k")}).status, 1) << "the public half is there";
  EXPECT_FALSE(exists(path("k.key")));
}

TEST_F(BundleSigned, ADamagedBundleIsNotSigned) {
  std::string bytes = bytes_of("a.kb");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write("b.kb", bytes);
  EXPECT_EQ(kiln({"bundle", "sign", path("b.kb"), "--key", path("k.key")}).status, 4);
  EXPECT_FALSE(exists(path("b.kb.minisig")));
}

TEST_F(BundleSigned, StockMinisignAcceptsIt) {
  NEEDS_MINISIGN();
  const std::string verify = "minisign -V -p " + path("k.pub") + " -m " + path("a.kb");
  EXPECT_EQ(run(verify), 0);
  std::string bytes = bytes_of("a.kb");
  bytes[40] = static_cast<char>(bytes[40] ^ 1);
  write("a.kb", bytes);
  EXPECT_NE(run(verify), 0);
}

TEST_F(BundleSigned, StockMinisignsSignatureIsAccepted) {
  NEEDS_MINISIGN();
  ASSERT_EQ(run("minisign -G -W -p " + path("m.pub") + " -s " + path("m.key")), 0);
  ASSERT_EQ(run("minisign -S -s " + path("m.key") + " -m " + path("a.kb") + " -t 'release 7'"), 0);
  EXPECT_EQ(required(path("m.pub")), 0);
  // And minisign's key signs with kiln.
  ASSERT_EQ(kiln({"bundle", "sign", path("a.kb"), "--key", path("m.key")}).status, 0);
  EXPECT_EQ(run("minisign -V -p " + path("m.pub") + " -m " + path("a.kb")), 0);
}

TEST_F(BundleSigned, StockMinisignsFormerKindIsRefusedByName) {
  NEEDS_MINISIGN();
  ASSERT_EQ(run("minisign -G -W -p " + path("m.pub") + " -s " + path("m.key")), 0);
  ASSERT_EQ(run("minisign -S -l -s " + path("m.key") + " -m " + path("a.kb")), 0);
  const Finished done = import(path("a.kb"), path("other"), {"--require-signature", path("m.pub")});
  EXPECT_EQ(done.status, 4);
  EXPECT_NE(done.err.find("former kind"), std::string::npos) << done.err;
}

TEST_F(BundleSigned, AKeyUnderAPasswordOfStockMinisignSigns) {
  KILN_NIGHTLY_ONLY();  // stock minisign takes 1 GiB and ten seconds
  NEEDS_MINISIGN();
  write("answers", "sesame\nsesame\n");
  // minisign reads a password from stdin when there is no terminal.
  if (run("setsid minisign -G -p " + path("e.pub") + " -s " + path("e.key") + " < " + path("answers")) != 0)
    GTEST_SKIP() << "this minisign wants a terminal for a password";
  write("password", "sesame\n");
  const Finished done =
      kiln({"bundle", "sign", path("a.kb"), "--key", path("e.key"), "--password-file", path("password")});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(run("minisign -V -p " + path("e.pub") + " -m " + path("a.kb")), 0);
  write("password", "barley\n");
  EXPECT_EQ(
      kiln({"bundle", "sign", path("a.kb"), "--key", path("e.key"), "--password-file", path("password")})
          .status,
      2);
}

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "base/arch.hpp"
#include "base/deadline.hpp"
#include "base/fd.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "base/wire.hpp"
#include "kiln/dtype.hpp"
#include "kiln/error.hpp"
#include "kiln/specialization.hpp"
#include "support/tree.hpp"

namespace kiln::base {
namespace {

TEST(Arch, SpellingsOfOneCapabilityAreTheSameArch) {
  for (const char* text : {"90", "sm_90", "sm_90a"}) EXPECT_EQ(Arch::parse(text).name(), "sm_90a") << text;
  EXPECT_EQ(Arch::parse("80").name(), "sm_80");
  EXPECT_EQ(Arch::parse("sm_120").name(), "sm_120a");
  EXPECT_EQ(Arch::of_capability(10, 3).name(), "sm_103a");
}

TEST(Arch, AFamilyAndABaseTargetHaveSpellingsOfTheirOwn) {
  struct Row {
    const char *text, *name, *compiler_name;
  };
  for (const Row& row : {Row{"100", "sm_100a", "sm_100a"}, Row{"sm_100f", "sm_100f", "sm_100f"},
                         Row{"100f", "sm_100f", "sm_100f"}, Row{"sm_100_base", "sm_100_base", "sm_100"},
                         Row{"120_base", "sm_120_base", "sm_120"}, Row{"sm_89", "sm_89", "sm_89"}}) {
    const Arch arch = Arch::parse(row.text);
    EXPECT_EQ(arch.name(), row.name);
    EXPECT_EQ(arch.compiler_name(), row.compiler_name);
    EXPECT_EQ(Arch::parse(arch.name()), arch);
  }
}

/// CUDA C++ Programming Guide, "Binary Compatibility" and "Family-Specific Features".
TEST(Arch, AnImageRunsWhereItsFeaturesAreKnown) {
  const auto runs = [](const char* image, int device) { return Arch::parse(image).runs_on(device); };
  EXPECT_TRUE(runs("sm_100a", 100) && runs("sm_100f", 100) && runs("sm_100_base", 100));
  EXPECT_TRUE(runs("sm_100f", 103) && runs("sm_100_base", 103) && runs("sm_120f", 121));
  EXPECT_FALSE(runs("sm_100a", 103)) << "exact code runs on one compute capability";
  EXPECT_FALSE(runs("sm_103f", 100)) << "an older device";
  EXPECT_FALSE(runs("sm_100_base", 120) || runs("sm_90a", 100)) << "another major version";
  EXPECT_TRUE(runs("sm_80", 86) && runs("sm_80", 89) && runs("sm_86", 89));
  EXPECT_FALSE(runs("sm_86", 80) || runs("sm_80", 90));
  EXPECT_FALSE(runs("sm_80", 87) || runs("sm_87", 89))
      << "Jetson and other GPUs do not run each other's code";
}

TEST(Arch, TheBestImageForADeviceComesFirst) {
  const auto names = [](int device) {
    std::string out;
    for (const Arch arch : Arch::that_run_on(device))
      if (arch.features != Features::ptx) out += (out.empty() ? "" : " ") + arch.name();
    return out;
  };
  EXPECT_EQ(names(103), "sm_103a sm_103f sm_100f sm_103_base sm_100_base");
  EXPECT_EQ(names(100), "sm_100a sm_100f sm_100_base");
  EXPECT_EQ(names(121), "sm_121a sm_121f sm_120f sm_121_base sm_120_base");
  EXPECT_EQ(names(90), "sm_90a");
  EXPECT_EQ(names(89), "sm_89 sm_86 sm_80");
  EXPECT_EQ(names(87), "sm_87");
  EXPECT_EQ(names(80), "sm_80");
  EXPECT_EQ(names(106), "sm_106a sm_106f sm_103f sm_100f sm_106_base sm_103_base sm_100_base")
      << "a GPU that is newer than this version of kiln";
}

TEST(Arch, PtxIsTheLastResortOfEveryLaterDevice) {
  EXPECT_EQ(Arch::parse("compute_80"), (Arch{80, Features::ptx}));
  EXPECT_EQ(Arch::parse("compute_80").name(), "compute_80");
  EXPECT_EQ(Arch::parse("compute_100").compiler_name(), "sm_100") << "the target whose PTX is taken";
  EXPECT_TRUE(Arch::parse("compute_80").runs_on(120) && Arch::parse("compute_80").runs_on(87));
  EXPECT_FALSE(Arch::parse("compute_90").runs_on(89));
  const std::vector<Arch> archs = Arch::that_run_on(90);
  std::string out;
  for (const Arch arch : archs) out += arch.name() + ' ';
  EXPECT_EQ(out, "sm_90a compute_90 compute_89 compute_87 compute_86 compute_80 compute_75 ");
}

TEST(Arch, NonsenseIsAnErrorThatShowsTheValueAndWhatIsExpected) {
  for (const char* text :
       {"", "sm_", "hopper", "9.0", "sm_80a", "sm_90b", "-90", "99999", "90 ", "sm_90f", "sm_90_base",
        "sm_80_base", "sm_100af", "_base", "compute_", "compute_90a", "compute_100f"}) {
    try {
      Arch::parse(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::unsupported_arch);
      EXPECT_NE(std::string(error.what()).find("'" + std::string(text) + "'"), std::string::npos);
    }
  }
}

TEST(DigestStream, OfPiecesIsTheDigestOfTheWhole) {
  std::string whole;
  DigestStream stream;
  EXPECT_EQ(stream.digest(), digest_of(""));
  for (int i = 0; i < 200; ++i) {
    const std::string piece(static_cast<std::size_t>(i) * 7, static_cast<char>('a' + i % 26));
    stream.add(piece);
    whole += piece;
    ASSERT_EQ(stream.digest(), digest_of(whole)) << i;
  }
}

TEST(Hash, IsXxh3InCanonicalOrder) {
  EXPECT_EQ(digest_of("").hex(),
            "99aa06d3014798d86001c324468d497f");  // XXH3_128bits of no bytes, from xxHash's test vectors
  EXPECT_NE(digest_of("a"), digest_of("b"));
}

TEST(Digest, HexRoundTripAndNothingElse) {
  const Digest d = digest_of("kiln");
  EXPECT_EQ(Digest::from_hex(d.hex()), d);
  EXPECT_FALSE(Digest::from_hex("zz"));
  EXPECT_FALSE(Digest::from_hex(std::string(32, 'G')));
  const Key k{digest_of("a"), digest_of("b")};
  EXPECT_EQ(Key::from_hex(k.hex()), k);
  EXPECT_FALSE(Key::from_hex(k.hex().substr(1)));
}

TEST(Dtype, NamesAndSizes) {
  EXPECT_EQ(dtype_from("bf16"), Dtype::bf16);
  EXPECT_FALSE(dtype_from("bfloat16"));
  EXPECT_EQ(size_of(Dtype::e4m3), 1u);
  EXPECT_EQ(size_of(Dtype::u64), 8u);
  EXPECT_EQ(dtype_from("ue8m0"), Dtype::ue8m0);
  EXPECT_EQ(size_of(Dtype::ue8m0), 1u);
  EXPECT_EQ(dlpack_code(Dtype::ue8m0), 14) << "kDLFloat8_e8m0fnu";
}

TEST(Dtype, IntegersAreSignedOrUnsigned) {
  for (int i = 0; i < kDtypeCount; ++i) {
    const auto type = static_cast<Dtype>(i);
    EXPECT_EQ(is_integer(type), to_string(type).front() == 'i' || to_string(type) == "u8" ||
                                    to_string(type) == "u32" || to_string(type) == "u64")
        << to_string(type);
  }
}

TEST(ReadFile, NeverBlocksOnAFifoAndNamesTheReason) {
  const kiln::testing::Tree tree;
  ASSERT_EQ(::mkfifo(tree.at("fifo").c_str(), 0600), 0);
  EXPECT_FALSE(read_file(tree.at("fifo")));
  EXPECT_EQ(errno, EINVAL);
  EXPECT_FALSE(read_file(tree.path()));
  EXPECT_EQ(errno, EISDIR);
  EXPECT_FALSE(read_file(tree.at("absent")));
  EXPECT_EQ(errno, ENOENT);
  tree.write("big", "12345");
  EXPECT_FALSE(read_file(tree.at("big"), 4));
  EXPECT_EQ(errno, EFBIG);
  EXPECT_EQ(read_file(tree.at("big"))->bytes, "12345");
}

TEST(FileStamp, OfAnOpenFileIsTheStampOfItsPath) {
  const kiln::testing::Tree tree;
  const std::string file = tree.write("f", "x");
  EXPECT_EQ(FileStamp::of_open(Fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC)).get()), FileStamp::of(file));
  EXPECT_FALSE(FileStamp::of_open(Fd(::open(tree.path().c_str(), O_RDONLY | O_CLOEXEC)).get()));
}

TEST(FileStamp, IsSettledOnlyWhenMtimeAndCtimeAreOld) {
  const kiln::testing::Tree tree;
  const std::string file = tree.write("f", "x");  // its mtime is a minute ago, its ctime is now
  EXPECT_FALSE(FileStamp::of(file)->settled());
  FileStamp old = *FileStamp::of(file);
  old.changed_ns = old.modified_ns;
  EXPECT_TRUE(old.settled());
}

TEST(WriteFile, ReplacesAtomicallyAndLeavesNoTemporary) {
  const kiln::testing::Tree tree;
  write_file(tree.at("f"), "one");
  write_file(tree.at("f"), "two", 0600);
  EXPECT_EQ(read_file(tree.at("f"))->bytes, "two");
  EXPECT_EQ(
      std::distance(std::filesystem::directory_iterator(tree.path()), std::filesystem::directory_iterator()),
      1);
  EXPECT_THROW(write_file(tree.at("no/such/dir/f"), "x"), Error);
}

TEST(TempDir, IsPrivateAndGoesAway) {
  std::string path;
  {
    const TempDir directory("kiln-base-test-");
    path = directory.path();
    struct stat st;
    ASSERT_EQ(::stat(path.c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777u, 0700u);
  }
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

TEST(Wire, BoundsEveryLength) {
  Writer w;
  w.number<std::uint32_t>(7).bytes("abc");
  Reader r(w.str());
  EXPECT_EQ(r.number<std::uint32_t>(), 7u);
  EXPECT_EQ(r.bytes(), "abc");
  EXPECT_TRUE(r.empty());
  EXPECT_THROW(r.number<char>(), Malformed);
  Reader limited(std::string_view(w.str()).substr(4));
  EXPECT_THROW(limited.bytes(2), Malformed);
  const std::string huge("\xff\xff\xff\xff", 4);
  Reader lies(huge);
  EXPECT_THROW(lies.list([](Reader&) {}), Malformed);
}

TEST(Deadline, PollUntilReturnsWhatTheLastAttemptReturned) {
  int calls = 0;
  EXPECT_TRUE(poll_until(Deadline::never(), [&] { return ++calls == 3; }));
  EXPECT_FALSE(poll_until(Deadline::after(std::chrono::milliseconds(5)), [] { return false; }));
  EXPECT_TRUE(Deadline::after(Clock::duration::zero()).passed());
  EXPECT_FALSE(Deadline::after(Clock::duration::max()).passed()) << "for ever does not overflow";
}

TEST(Text, SuggestsTheNearestName) {
  EXPECT_EQ(did_you_mean("rms_nrom", {"softmax", "rms_norm"}), "; did you mean 'rms_norm'?");
  EXPECT_EQ(did_you_mean("zzz", {"softmax", "rms_norm"}), "");
  EXPECT_EQ(did_you_mean("G", {"T", "H"}), "");
  EXPECT_EQ(split("a::b:", ':'), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(is_identifier("_a1"));
  for (const char* text : {"", "1a", "a-b", "a b", "a\n"}) EXPECT_FALSE(is_identifier(text)) << text;
}

TEST(Text, HasTheCharactersOfIdentifiers) {
  const std::string_view all = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";
  for (int c = 0; c < 256; ++c)
    EXPECT_EQ(is_identifier_character(static_cast<char>(c)),
              all.find(static_cast<char>(c)) != std::string_view::npos)
        << c;
}

TEST(Text, WritesNumbersWithSixDigits) {
  EXPECT_EQ(decimal(600), "600");
  EXPECT_EQ(decimal(0.5), "0.5");
  EXPECT_EQ(decimal(1e-6), "1e-06");
  EXPECT_EQ(hex(std::string_view("k\0\xff", 3)), "6b00ff");
  EXPECT_EQ(decimal(-1.0 / 3), "-0.333333");
  EXPECT_EQ(decimal(-2.2250738585072014e-308), "-2.22507e-308");
}

TEST(Text, AVariableThatIsNotSetIsEmpty) {
  ::setenv("KILN_TEST_TEXT", "a b", 1);
  EXPECT_EQ(environment("KILN_TEST_TEXT"), "a b");
  ::unsetenv("KILN_TEST_TEXT");
  EXPECT_EQ(environment("KILN_TEST_TEXT"), "");
}

TEST(Value, ConvertsFromWhatCallersHave) {
  EXPECT_EQ(Value(4096).kind, Value::Kind::integer);
  EXPECT_EQ(Value(std::uint64_t{7}).integer, 7);
  EXPECT_EQ(Value(true).kind, Value::Kind::boolean);
  EXPECT_EQ(Value(Dtype::bf16).kind, Value::Kind::dtype);
  EXPECT_EQ(Value("bf16").text, "bf16");
  EXPECT_EQ((Specialization{"t", {{"T", "bf16"}, {"H", "1"}}}.to_string()), "t T=bf16 H=1");
}

}  // namespace
}  // namespace kiln::base

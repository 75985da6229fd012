#include "toolchain/library_identity.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.hpp"
#include "base/hash.hpp"
#include "support/places.hpp"
#include "support/sanitized.hpp"
#include "support/system_calls.hpp"
#include "tests/toolchain/elf_file.hpp"
#include "toolchain/build_id.hpp"

namespace kiln::toolchain {
namespace {

base::Fd open_file(const std::string& path) {
  return base::Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

class LibraryIdentity : public ::testing::Test {
 protected:
  std::string path() const { return directory_.path() + "/lib.so"; }
  std::string of(const std::string& bytes) {
    base::write_file(path(), bytes);
    return library_identity(open_file(path()));
  }

  /// A real shared library, which the linker made with --build-id=none.
  const std::string real_ = std::string(places::kBuildDirectory) + "/tests/libkiln_no_build_id.so";

 private:
  base::TempDir directory_{"kiln-identity-"};
};

TEST_F(LibraryIdentity, IsTheBuildIdOfALibraryThatHasOne) {
  EXPECT_EQ(of(test::elf_with_notes(test::gnu_build_id_note("\x01\xab\xff"))), "01abff");
}

TEST_F(LibraryIdentity, IsADigestOfTheBytesOfALibraryWithoutBuildId) {
  ASSERT_FALSE(build_id_of(real_)) << real_ << " was linked with a build-id";
  const auto content = base::read_file(real_);
  ASSERT_TRUE(content);
  EXPECT_EQ(library_identity(open_file(real_)), "xxh3-128:" + base::digest_of(content->bytes).hex());
}

TEST_F(LibraryIdentity, CoversEveryByteOfALargeFile) {
  std::string bytes = base::read_file(real_)->bytes;
  bytes.resize(3 << 20, 'x');  // more than one block
  const std::string first = of(bytes);
  EXPECT_EQ(first, "xxh3-128:" + base::digest_of(bytes).hex());
  for (const std::size_t changed : {std::size_t{1} << 20, bytes.size() - 1}) {
    std::string other = bytes;
    other[changed] = 'y';
    EXPECT_NE(of(other), first) << changed;
  }
}

TEST_F(LibraryIdentity, FollowsAFileThatIsWrittenInPlace) {
  std::string bytes = base::read_file(real_)->bytes;
  const std::string before = of(bytes);
  struct stat old {};
  ASSERT_EQ(::stat(path().c_str(), &old), 0);
  const base::Fd file(::open(path().c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_EQ(::pwrite(file.get(), "y", 1, static_cast<off_t>(bytes.size() - 1)), 1);
  const timespec times[] = {old.st_atim, old.st_mtim};
  ASSERT_EQ(::futimens(file.get(), times), 0);  // size, inode and mtime are as before
  EXPECT_NE(library_identity(open_file(path())), before);
}

TEST_F(LibraryIdentity, ReadsAnUnchangedFileOnceInAProcess) {
  KILN_SKIP_SANITIZED("system calls");
  while (!base::FileStamp::of(real_)->settled()) ::usleep(100'000);  // it may have been linked just now
  const auto calls_of = [&](int times) {
    return testing::system_calls_of([&] {
      for (int i = 0; i < times; ++i) library_identity(open_file(real_));
    });
  };
  const auto once = calls_of(1), twice = calls_of(2), thrice = calls_of(3);
  if (!once) GTEST_SKIP() << "no process may be traced here";
  EXPECT_LT(*twice - *once, *once) << "the second call reads no content";
  EXPECT_EQ(*thrice - *twice, *twice - *once);
}

TEST_F(LibraryIdentity, IsEmptyForWhatIsNoElfFile) {
  EXPECT_EQ(of(""), "");
  EXPECT_EQ(of("\x7f"
               "EL"),
            "");
  EXPECT_EQ(of("#!/bin/sh\n"), "");
  EXPECT_EQ(library_identity(base::Fd()), "");
  EXPECT_EQ(library_identity(open_file(base::directory_of(path()))), "");
  const std::string fifo = path() + ".fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(library_identity(open_file(fifo)), "");
}

TEST(IdentityText, NamesTheKindOfIdentity) {
  EXPECT_EQ(identity_text("0123456789abcdef"), "build-id 0123456789ab");
  EXPECT_EQ(identity_text("xxh3-128:fedcba98765432100123456789abcdef"), "digest fedcba987654");
  EXPECT_EQ(identity_text(""), "no identity");
}

}  // namespace
}  // namespace kiln::toolchain

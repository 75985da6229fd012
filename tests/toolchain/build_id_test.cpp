#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.hpp"
#include "tests/toolchain/elf_file.hpp"
#include "toolchain/build_id.hpp"

namespace kiln::toolchain {
namespace {

using test::elf_note;
using test::elf_with_notes;
using test::gnu_build_id_note;

class BuildId : public ::testing::Test {
 protected:
  std::string write(const std::string& bytes) {
    const std::string path = directory_.path() + "/lib.so";
    base::write_file(path, bytes);
    return path;
  }
  base::TempDir directory_{"kiln-build-id-"};
};

TEST_F(BuildId, IsTheGnuNoteInHex) {
  EXPECT_EQ(build_id_of(write(elf_with_notes(gnu_build_id_note("\x01\xab\xff")))), "01abff");
}

TEST_F(BuildId, IsFoundBehindOtherNotes) {
  const std::string notes = elf_note(5, std::string("GNU\0", 4), "prop") +
                            elf_note(NT_GNU_BUILD_ID, std::string("stapsdt\0", 8), "no") +
                            gnu_build_id_note("\x12\x34");
  EXPECT_EQ(build_id_of(write(elf_with_notes(notes))), "1234");
}

TEST_F(BuildId, IsFoundInASectionWhenTheSegmentIsStale) {
  // patchelf leaves such files: the segment points to zeros. The section after them is
  // intact and aligned to 8.
  const std::string stale(36, '\0'), note = gnu_build_id_note("\x0c\x0d");
  std::string image = elf_with_notes(stale);
  Elf64_Shdr sections[2]{};
  sections[1].sh_type = SHT_NOTE;
  sections[1].sh_offset = image.size();
  sections[1].sh_size = note.size();
  sections[1].sh_addralign = 8;
  image += note;
  auto* header = reinterpret_cast<Elf64_Ehdr*>(image.data());
  header->e_shoff = image.size();
  header->e_shnum = 2;
  header->e_shentsize = sizeof(Elf64_Shdr);
  image.append(reinterpret_cast<const char*>(sections), sizeof sections);
  EXPECT_EQ(build_id_of(write(image)), "0c0d");
}

TEST_F(BuildId, FollowsSymlinks) {
  const std::string path = write(elf_with_notes(gnu_build_id_note("\x11")));
  std::filesystem::create_symlink(path, directory_.path() + "/link.so");
  EXPECT_EQ(build_id_of(directory_.path() + "/link.so"), "11");
}

TEST_F(BuildId, IsNothingWithoutFileNoteOrElf) {
  EXPECT_FALSE(build_id_of(directory_.path() + "/absent.so"));
  EXPECT_FALSE(build_id_of(directory_.path()));
  EXPECT_FALSE(build_id_of(write("")));
  EXPECT_FALSE(build_id_of(write("#!/bin/sh\n")));
  EXPECT_FALSE(build_id_of(write(elf_with_notes(elf_note(1, std::string("GNU\0", 4), "abi")))));
  EXPECT_FALSE(build_id_of(write(elf_with_notes(gnu_build_id_note("")))));
}

TEST_F(BuildId, DoesNotBlockOnAFifo) {
  const std::string path = directory_.path() + "/fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(build_id_of(path));
}

TEST_F(BuildId, SurvivesDamage) {
  const std::string image = elf_with_notes(elf_note(5, std::string("GNU\0", 4), "prop") +
                                           gnu_build_id_note(std::string(20, '\x5a')));
  for (std::size_t size = 0; size < image.size(); ++size) build_id_of(write(image.substr(0, size)));
  for (std::size_t i = 0; i < image.size(); ++i) {
    std::string damaged = image;
    damaged[i] = static_cast<char>(~damaged[i]);
    build_id_of(write(damaged));
  }
}

TEST_F(BuildId, ReadsTheToolsOwnLibrary) {  // the C library, a real file
  const char* places[] = {"/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6",
                          "/lib64/libc.so.6"};
  for (const char* path : places) {
    if (::access(path, R_OK) != 0) continue;
    const auto id = build_id_of(path);
    ASSERT_TRUE(id) << path;
    EXPECT_GE(id->size(), 16u);
    return;
  }
  GTEST_SKIP() << "no glibc at the usual places";
}

}  // namespace
}  // namespace kiln::toolchain

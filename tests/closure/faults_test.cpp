// Files that a key cannot see must not be compiled under it.
#include <sys/stat.h>

#include <fstream>

#include "base/hash.hpp"
#include "support/expect_error.hpp"
#include "tests/closure/closure_tree.hpp"

namespace kiln::source {
namespace {

TEST(ClosureFaults, AbsoluteIncludesAreRefused) {
  ClosureTree t;
  t.project({"p"});
  t.toolkit({"t"});
  const std::string target = t.write("x.h", "");
  t.write("p/a.h", "#include \"" + target + "\"\n");
  t.write("t/b.h", "#include \"" + target + "\"\n");
  expect_error(Errc::source, {"'.k0/a.h'", target, "absolute include"}, [&] { t.scan("#include <a.h>\n"); });
  expect_error(Errc::source, {"the template's source", "'</etc/hosts>'", "absolute include"},
               [&] { t.scan("#include </etc/hosts>\n"); });
  expect_error(Errc::source, {"absolute include"},
               [&] { t.scan("#if __has_include(\"/etc/hosts\")\n#endif\n"); });
  EXPECT_EQ(t.scan("#include <b.h>\n").files.size(), 1u);  // the toolkit may have absolute includes
  EXPECT_NO_THROW(t.scan("#define LOG \"/var/log/x.log\"\n"));
}

TEST(ClosureFaults, LeavingTheSearchDirectoryIsRefusedWhenThereIsSuchAFile) {
  ClosureTree t;
  t.project({"p/templates"});
  t.write("p/common/x.h", "");
  t.write("p/templates/sub/a.h", "#include \"../../common/x.h\"\n");
  expect_error(Errc::source,
               {"the template's source includes '../common/x.h'",
                "leaves its search directory '" + t.path("p/templates") + "'",
                "add '" + t.path("p/common") + "' to include_dirs"},
               [&] { t.scan("#include \"../common/x.h\"\n"); });
  expect_error(Errc::source, {"'.k0/sub/a.h' includes", "add '" + t.path("p/common") + "'"},
               [&] { t.scan("#include <sub/a.h>\n"); });
  EXPECT_EQ(t.scan("#include \"../nothing.h\"\n#include \"..\"\n").missing,
            (Strings{"\"../nothing.h\"", "\"..\""}));
}

TEST(ClosureFaults, TheToolkitMayLeaveItsDirectory) {
  ClosureTree t;
  t.toolkit({"t/include"});
  t.write("t/nvvm/x.h", "int x;\n");
  t.write("t/include/a.h", "#include \"../nvvm/x.h\"\n");
  const Closure c = t.scan("#include <a.h>\n");
  EXPECT_EQ(symbolic(c), (Strings{".t0/a.h", ".t0/../nvvm/x.h"}));
  EXPECT_EQ(c.files[1].digest, base::digest_of(std::string_view("int x;\n")));
}

TEST(ClosureFaults, FifosAndDevicesAreRefused) {
  ClosureTree t;
  t.project({"p"});
  ASSERT_EQ(::mkfifo(t.path("p/fifo.h").c_str(), 0600), 0);
  expect_error(Errc::source, {t.path("p/fifo.h"), "is not a regular file"},
               [&] { t.scan("#include <fifo.h>\n"); });
  std::filesystem::create_symlink("/dev/zero", t.path("p/zero.h"));
  expect_error(Errc::source, {t.path("p/zero.h"), "is not a regular file"},
               [&] { t.scan("#include <zero.h>\n"); });
}

TEST(ClosureFaults, AFileThatCannotBeReadIsNamedWithWhoIncludesItAndHow) {
  ClosureTree t;
  t.project({"p"});
  ASSERT_EQ(::mkfifo(t.path("p/fifo.h").c_str(), 0600), 0);
  t.link("fifo.h", "p/link.h");
  t.write("p/a.h", "#include \"link.h\"\n");
  expect_error(Errc::source, {"'.k0/a.h' includes 'link.h'", t.path("p/link.h"), "is not a regular file"},
               [&] { t.scan("#include <a.h>\n"); });
}

TEST(ClosureFaults, AbsoluteIncludesAreRefusedInEverySpelling) {
  ClosureTree t;
  t.project({"p"});
  t.toolkit({"t"});
  t.write("t/takes_f.h", "#include F\n");
  t.write("p/defines_f.h", "#define F \"/dev/zero\"\n");
  for (const char* text : {
           "#include \"/dev/zero\"\n",
           "#include </dev/zero>\n",
           "#import \"/dev/zero\"\n",
           "#include_next \"/dev/zero\"\n",
           "#embed \"/dev/zero\"\n",
           "%:include \"/dev/zero\"\n",
           "\?\?=include \"/dev/zero\"\n",
           "#inc\\\nlude \"/dev/zero\"\n",
           "#include \"/d\\\nev/zero\"\n",
           "#include \"/d\?\?/\nev/zero\"\n",
           "/* x */ # /* y */ include /* z */ \"/dev/zero\"\n",
           "#if __has_include(\"/dev/zero\")\n#endif\n",
           "#if __has_include_next(</dev/zero>)\n#endif\n",
           "const char* s = R\"(\n#include \"/dev/zero\"\n)\";\n",
           "#define F \"/dev/zero\"\n#include F\n",
           "#define F </dev/zero>\n#include F\n",
           "#include F\n#define F \"/dev/zero\"\n",
           "#define F G\n#define G H\n#define H \"/dev/zero\"\n#include F\n",
           "#define F(x) \"/dev/zero\"\n#include F(1)\n",
           "#define F \"/dev\\\n/zero\"\n#include F\n",
           "#define F \"/dev/zero\"\n#if __has_include(F)\n#endif\n",
           "#define F \"/dev/zero\"\n#include <takes_f.h>\n",
           "#include <defines_f.h>\n#include <takes_f.h>\n",
       })
    expect_error(Errc::source, {"/dev/zero", "an absolute include", "include_dirs"}, [&] { t.scan(text); });
}

TEST(ClosureFaults, AnAbsoluteNameThatNoIncludeTakesIsOnlyText) {
  ClosureTree t;
  t.project({"p"});
  t.write("p/a.h", "");
  for (const char* text : {"#define LOG \"/var/log/x.log\"\n#define F \"a.h\"\n#include F\n",
                           "#define LOG \"/var/log/x.log\"\n#include <a.h>\n",
                           "const char* f = \"/dev/zero\";\n#define F \"a.h\"\n#include F\n"})
    EXPECT_NO_THROW(t.scan(text)) << text;
}

TEST(ClosureFaults, ASymlinkOutOfTheSearchDirectoryIsItsOwnersBusiness) {
  ClosureTree t;
  t.project({"p"});
  const std::string target = t.write("farm/x.h", "int x;\n");
  std::filesystem::create_symlink(target, t.path("p/x.h"));
  EXPECT_EQ(symbolic(t.scan("#include <x.h>\n")), Strings{".k0/x.h"});
}

TEST(ClosureFaults, HugeFilesAreRefused) {
  ClosureTree t;
  t.project({"p"});
  t.write("p/huge.h", "");
  std::filesystem::resize_file(t.path("p/huge.h"), (std::uintmax_t{64} << 20) + 1);
  expect_error(Errc::source, {t.path("p/huge.h"), "larger than 64 MB"},
               [&] { t.scan("#include <huge.h>\n"); });
}

TEST(ClosureFaults, UnreadableFilesAreNamed) {
  if (::geteuid() == 0) GTEST_SKIP() << "root reads everything";
  ClosureTree t;
  t.project({"p"});
  t.write("p/x.h", "");
  std::filesystem::permissions(t.path("p/x.h"), std::filesystem::perms::none);
  expect_error(Errc::source, {t.path("p/x.h"), "cannot be read", "Permission denied"},
               [&] { t.scan("#include <x.h>\n"); });
}

TEST(ClosureFaults, DanglingSymlinksAreMissing) {
  ClosureTree t;
  t.project({"p"});
  std::filesystem::create_symlink("nowhere", t.path("p/x.h"));
  EXPECT_EQ(t.scan("#include <x.h>\n").missing, Strings{"<x.h>"});
}

TEST(ClosureFaults, ADirectoryThatContainsItselfEnds) {
  ClosureTree t;
  t.project({"p"});
  t.link(".", "p/loop");
  t.write("p/a.h", "#include \"loop/a.h\"\n");
  EXPECT_LT(t.scan("#include <a.h>\n").files.size(), 100u);  // the system follows 40 links
}

TEST(ClosureFaults, NoisyNamesAreShownSafely) {
  ClosureTree t;
  t.project({"p"});
  expect_error(Errc::source, {"\\x1b[31m"}, [&] { t.scan("#include \"/\x1b[31m\"\n"); });
}

TEST(Changed, NothingWhenAllIsAsItWas) {
  ClosureTree t;
  t.project({"p"});
  t.write("p/a.h", "int a;\n");
  EXPECT_FALSE(t.scan("#include <a.h>\n").changed());
}

TEST(Changed, NoticesAnEditOfTheSameSize) {
  ClosureTree t;
  t.project({"p"});
  t.write("p/a.h", "#include \"b.h\"\n");
  t.write("p/b.h", "int b;\n");
  const Closure c = t.scan("#include <a.h>\n");
  t.write("p/b.h", "int c;\n");
  EXPECT_EQ(c.changed(), t.path("p/b.h"));
}

TEST(Changed, NoticesAnEditInPlaceWithinTheClocksTick) {
  ClosureTree t;
  t.project({"p"});
  for (int i = 0; i < 50; ++i) {
    t.write("p/a.h", "int a;\n");
    const Closure c = t.scan("#include <a.h>\n");
    std::fstream(t.path("p/a.h"), std::ios::in | std::ios::out) << "int b;\n";
    EXPECT_EQ(c.changed(), t.path("p/a.h"));
  }
}

TEST(Changed, NoticesAVanishedFile) {
  ClosureTree t;
  t.project({"p"});
  t.write("p/a.h", "int a;\n");
  const Closure c = t.scan("#include <a.h>\n");
  t.remove("p/a.h");
  EXPECT_EQ(c.changed(), t.path("p/a.h"));
}

// The file may have had other content in between, while the compiler read it.
TEST(Changed, AFileThatWasWrittenAgainCountsAsChangedEvenWithTheSameContent) {
  ClosureTree t;
  t.project({"p"});
  t.write("p/a.h", "int a;\n");
  const Closure c = t.scan("#include <a.h>\n");
  t.write("p/a.h", "int a;\n");
  EXPECT_TRUE(c.changed());
}

}  // namespace
}  // namespace kiln::source

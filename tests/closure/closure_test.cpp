#include "tests/closure/closure_tree.hpp"

namespace kiln::source {
namespace {

TEST(Closure, FollowsIncludesAndHashesTheFiles) {
  ClosureTree t;
  t.project({"p"});
  t.write("p/a.h", "#include \"sub/b.h\"\n");
  t.write("p/sub/b.h", "#include \"c.h\"\n#include <a.h>\n");
  t.write("p/sub/c.h", "int c;\n");
  const Closure c = t.scan("#include \"a.h\"\n");
  EXPECT_EQ(symbolic(c), (Strings{".k0/a.h", ".k0/sub/b.h", ".k0/sub/c.h"}));
  EXPECT_EQ(edges(c), (Strings{" \"a.h\" -> .k0/a.h", ".k0/a.h \"sub/b.h\" -> .k0/sub/b.h",
                               ".k0/sub/b.h \"c.h\" -> .k0/sub/c.h", ".k0/sub/b.h <a.h> -> .k0/a.h"}));
  EXPECT_EQ(roots(c), Strings{".k0 p"});
  EXPECT_EQ(c.files[1].path, t.path("p/sub/b.h"));
  EXPECT_NE(c.files[0].digest, c.files[1].digest);
  EXPECT_EQ(c.files[0].stamp.size, 19u);
  EXPECT_FALSE(c.files[0].toolkit || c.files[0].via_toolkit || c.computed || c.toolkit_computed);
  EXPECT_TRUE(c.missing.empty());
}

TEST(Closure, NothingIncludedIsNothing) {
  ClosureTree t;
  const Closure c = t.scan("__global__ void k() {}\n");
  EXPECT_TRUE(c.files.empty() && c.edges.empty() && c.roots.empty() && c.missing.empty());
  EXPECT_FALSE(c.changed());
}

TEST(Closure, ATransitiveEditChangesTheKey) {
  ClosureTree t;
  t.project({"p"});
  t.write("p/a.h", "#include \"b.h\"\n");
  t.write("p/b.h", "int b;\n");
  const auto before = identity(t.scan("#include <a.h>\n"));
  t.write("p/b.h", "int B;\n");
  EXPECT_NE(identity(t.scan("#include <a.h>\n")), before);
  t.write("p/b.h", "int b;\n");
  EXPECT_EQ(identity(t.scan("#include <a.h>\n")), before);
}

TEST(Closure, AnAppearingHeaderChangesTheKey) {
  ClosureTree t;
  t.project({"p"});
  const std::string source = "#if __has_include(<later.h>)\n#endif\n";
  const Closure before = t.scan(source);
  EXPECT_EQ(before.missing, Strings{"<later.h>"});
  EXPECT_TRUE(before.edges.empty());
  t.write("p/later.h", "");
  const Closure after = t.scan(source);
  EXPECT_EQ(edges(after), Strings{" <later.h> -> .k0/later.h"});
  EXPECT_TRUE(after.missing.empty());
}

TEST(Closure, AMovedPrefixChangesNothing) {
  ClosureTree a, b;
  for (ClosureTree* t : {&a, &b}) {
    const std::string prefix = t == &a ? "here" : "quite/another/place";
    t->project({prefix + "/p", prefix + "/q"});
    t->write(prefix + "/p/a.h", "#include <b.h>\n");
    t->write(prefix + "/q/b.h", "int b;\n");
  }
  EXPECT_EQ(identity(a.scan("#include \"a.h\"")), identity(b.scan("#include \"a.h\"")));
  EXPECT_EQ(symbolic(a.scan("#include \"a.h\"")), (Strings{".k0/a.h", ".k1/b.h"}));
}

TEST(Closure, TheOrderOfDirectoriesIsIrrelevantWhenUnambiguous) {
  ClosureTree a, b;
  for (ClosureTree* t : {&a, &b}) {
    t->write("p/a.h", "#include <b.h>\n");
    t->write("q/b.h", "int b;\n");
  }
  a.project({"p", "q"});
  b.project({"unused", "q", "p"});
  EXPECT_EQ(identity(a.scan("#include <a.h>")), identity(b.scan("#include <a.h>")));
  EXPECT_EQ(roots(a.scan("#include <a.h>")), (Strings{".k0 p", ".k1 q"}));
  EXPECT_EQ(roots(b.scan("#include <a.h>")),
            (Strings{".k1 q", ".k0 p"}));  // in search order, numbered by first use
}

TEST(Closure, OneSpellingInTwoDirectoriesTakesTheFirst) {
  ClosureTree t;
  t.project({"p", "q"});
  t.write("p/x.h", "int p;\n");
  t.write("q/x.h", "int q;\n");
  t.write("q/y.h", "#include \"x.h\"\n#include <x.h>\n");
  const Closure c = t.scan("#include <x.h>\n#include <y.h>\n");
  EXPECT_EQ(edges(c), (Strings{" <x.h> -> .k0/x.h", " <y.h> -> .k1/y.h", ".k1/y.h \"x.h\" -> .k1/x.h",
                               ".k1/y.h <x.h> -> .k0/x.h"}));
  EXPECT_NE(file_of(c, ".k0/x.h").digest, file_of(c, ".k1/x.h").digest);
}

TEST(Closure, AQuotedIncludeBesideItsIncluderBeatsTheSearchPath) {
  ClosureTree t;
  t.project({"p"});
  t.write("p/x.h", "int outer;\n");
  t.write("p/sub/x.h", "int inner;\n");
  t.write("p/sub/a.h", "#include \"x.h\"\n");
  EXPECT_EQ(edges(t.scan("#include <sub/a.h>\n"))[1], ".k0/sub/a.h \"x.h\" -> .k0/sub/x.h");
  t.remove("p/sub/x.h");
  EXPECT_EQ(edges(t.scan("#include <sub/a.h>\n"))[1], ".k0/sub/a.h \"x.h\" -> .k0/x.h");
}

TEST(Closure, BracketsDoNotLookBesideTheIncluder) {
  ClosureTree t;
  t.project({"p"});
  t.write("p/sub/x.h", "");
  t.write("p/sub/a.h", "#include <x.h>\n");
  EXPECT_EQ(t.scan("#include <sub/a.h>\n").missing, Strings{"<x.h>"});
}

TEST(Closure, NamesAreNormalised) {
  ClosureTree t;
  t.project({"p"});
  t.write("p/a/x.h", "#include \"../b/y.h\"\n");
  t.write("p/b/y.h", "");
  const Closure c = t.scan("#include \"./a//x.h\"\n#include <a/../b/./y.h>\n");
  EXPECT_EQ(symbolic(c), (Strings{".k0/a/x.h", ".k0/b/y.h"}));
  EXPECT_EQ(c.edges.size(), 3u);
  EXPECT_EQ(c.edges[1].spelling, "<a/../b/./y.h>");
}

TEST(Closure, DotsBehindASymlinkLeadWhereTheSystemSays) {
  ClosureTree t;
  t.project({"p"});
  t.write("p/x.h", "int lexical;\n");
  t.write("q/x.h", "int physical;\n");
  std::filesystem::create_directories(t.path("q/deep"));
  t.link(t.path("q/deep"), "p/sub");
  const Closure c = t.scan("#include <sub/../x.h>\n#include <x.h>\n");
  ASSERT_EQ(c.files.size(), 2u);
  EXPECT_EQ(c.files[0].symbolic, ".k0/sub/../x.h");
  EXPECT_EQ(c.files[1].symbolic, ".k0/x.h");
  EXPECT_NE(c.files[0].digest, c.files[1].digest);
}

TEST(Closure, ExtraSpellingsCountAsIncludesOfTheSource) {
  ClosureTree t;
  t.project({"p"});
  t.write("p/impl.h", "");
  t.extra = {"impl.h", "nowhere.h"};
  const Closure c = t.scan("#include \"first.h\"\n");
  EXPECT_EQ(edges(c), Strings{" \"impl.h\" -> .k0/impl.h"});
  EXPECT_EQ(c.missing, (Strings{"\"first.h\"", "\"nowhere.h\""}));
}

TEST(Closure, AReplacedHeaderIsReplacedForIncludeNextToo) {
  ClosureTree t;
  t.project({"p", "q"});
  t.search.replace = {{"exception.h", "stub.h"}};
  t.write("p/wrap.h", "#include_next <exception.h>\n");
  t.write("p/exception.h", "int a;\n");
  t.write("q/exception.h", "int b;\n");
  t.write("q/stub.h", "int c;\n");
  EXPECT_EQ(edges(t.scan("#include \"wrap.h\"\n")),
            (Strings{" \"wrap.h\" -> .k0/wrap.h", ".k0/wrap.h <exception.h> -> .k1/stub.h"}));
}

TEST(Closure, OneDirectoryByTwoNamesCountsOnce) {
  ClosureTree t;
  t.project({"p"});
  t.link(t.path("p"), "alias");
  t.search.project.push_back(t.path("alias"));
  t.search.project.push_back(t.path("p/."));
  t.write("p/a.h", "#include NAME\n");
  EXPECT_EQ(roots(t.scan("#include <a.h>\n")), Strings{".k0 p"});
}

TEST(Closure, AComputedIncludeOfTheProjectListsEveryRoot) {
  ClosureTree t;
  t.project({"unused", "p"});
  t.toolkit({"t"});
  t.write("p/a.h", "#include NAME\n");
  const Closure c = t.scan("#include <a.h>\n");
  EXPECT_TRUE(c.computed);
  EXPECT_EQ(roots(c), (Strings{".k1 unused", ".k0 p", ".t0 t"}));
  EXPECT_TRUE(t.scan("#include X\n").computed);
  EXPECT_FALSE(t.scan("// #include X\n").computed);
}

TEST(Closure, FilesThatMentionTheDateAreListed) {
  ClosureTree t;
  t.project({"p"});
  t.write("p/a.h", "__DATE__");
  EXPECT_EQ(t.scan("#include <a.h>\n").date_time, Strings{".k0/a.h"});
  EXPECT_EQ(t.scan("#include <a.h>\nchar* c = __TIME__;\n").date_time, (Strings{"", ".k0/a.h"}));
}

TEST(Closure, CyclesEnd) {
  ClosureTree t;
  t.project({"p"});
  t.write("p/a.h", "#include \"b.h\"\n#include \"a.h\"\n");
  t.write("p/b.h", "#include \"a.h\"\n");
  EXPECT_EQ(t.scan("#include <a.h>\n").files.size(), 2u);
}

TEST(Closure, ADirectoryOfThatNameIsNotFound) {
  ClosureTree t;
  t.project({"p", "q"});
  std::filesystem::create_directories(t.path("p/x.h"));
  t.write("q/x.h", "");
  EXPECT_EQ(edges(t.scan("#include <x.h>\n")), Strings{" <x.h> -> .k0/x.h"});
  EXPECT_EQ(t.scan("#include <x.h>\n").files[0].path, t.path("q/x.h"));
}

}  // namespace
}  // namespace kiln::source

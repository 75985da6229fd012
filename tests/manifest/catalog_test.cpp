#include "manifest/catalog.hpp"

#include <thread>

#include "support/child.hpp"
#include "support/other_user.hpp"
#include "support/sanitized.hpp"
#include "support/system_calls.hpp"
#include "tests/closure/tree.hpp"
#include "tests/manifest/text.hpp"

namespace kiln::source {
namespace {

std::string minimal(const std::string& name, const std::string& more = "") {
  return "format = 1\n[template]\nname = \"" + name + "\"\nsource = \"" + name + ".cu\"\ninstantiate = \"" +
         name + "\"\n" + more + "[launch]\ngrid = [1]\nblock = [1]\n";
}

TEST(Catalog, OpensATemplateByName) {
  const Tree tree;
  tree.write(
      "a/one.toml",
      minimal("one",
              "[reference]\nsource = \"one.reference.cu\"\ninstantiate = \"r\"\ngrid = [1]\nblock = [1]\n"));
  tree.write("a/one.cu", "kernel");
  tree.write("a/one.reference.cu", "reference");
  Catalog catalog({tree.path("missing"), tree.path("a/")});
  const auto opened = catalog.open("one");
  EXPECT_EQ(opened->manifest.name, "one");
  EXPECT_EQ(opened->manifest.file, tree.path("a/one.toml"));
  EXPECT_EQ(opened->directory, tree.path("a"));
  EXPECT_EQ(opened->kernel.name, "one.cu");
  EXPECT_EQ(opened->kernel.path, tree.path("a/one.cu"));
  EXPECT_EQ(opened->kernel.read(), "kernel");
  EXPECT_EQ(opened->reference.read(), "reference");
  EXPECT_EQ(catalog.open("one"), opened);
}

TEST(Catalog, LooksIntoFamilies) {
  const Tree tree;
  tree.write("t/family/one.toml", minimal("one",
                                          "[reference]\nsource = \"ref/one.cu\"\ninstantiate = "
                                          "\"r\"\ngrid = [1]\nblock = [1]\n"));
  tree.write("t/family/one.cu", "kernel");
  tree.write("t/family/deeper/two.toml", minimal("two"));
  tree.write("t/.hidden/three.toml", minimal("three"));
  tree.write("t/four.toml", minimal("four"));
  Catalog catalog({tree.path("t")});
  EXPECT_EQ(catalog.names(), (std::vector<std::string>{"four", "one"}));
  const auto opened = catalog.open("one");
  EXPECT_EQ(opened->manifest.file, tree.path("t/family/one.toml"));
  EXPECT_EQ(opened->root, tree.path("t"));
  EXPECT_EQ(opened->directory, tree.path("t/family"));
  EXPECT_EQ(opened->kernel.name, "one.cu") << "no family in it: where a template lies is not in its key";
  EXPECT_EQ(opened->kernel.read(), "kernel");
  EXPECT_EQ(opened->reference.path, tree.path("t/family/ref/one.cu"));
  EXPECT_EQ(catalog.open("one"), opened);
  EXPECT_EQ(catalog.open("four")->root, catalog.open("four")->directory);
  for (const char* name : {"two", "three", "family/one"})
    expect_error(Errc::unknown_template, {name}, [&] { catalog.open(name); });
}

TEST(Catalog, OpensWithFewSystemCalls) {
  KILN_SKIP_SANITIZED("system calls");
  const Tree tree;
  tree.write("t/norm/one.toml", minimal("one"));
  for (const char* other : {"t/attention/two.toml", "t/kiln/vector.cuh", "t/moe/three.toml", "t/four.toml"})
    tree.write(other, "");
  const auto calls = testing::system_calls_of([&] { Catalog({tree.path("t")}).open("one"); });
  if (!calls) GTEST_SKIP() << "no process may be traced here";
  EXPECT_LE(*calls, 1 + 4 + 4 + 4)
      << "which process this is, the listing, a look into each of four families, the file";
}

TEST(Catalog, FindsWhatLiesInADirectoryThatMayNotBeListed) {
  KILN_NEEDS_ROOT();
  const Tree tree;
  tree.write("t/one.toml", minimal("one"));
  for (const std::string& directory : {tree.path(), tree.path("t")}) testing::make(directory, 0711, 0);
  const std::string found =
      testing::as_user(testing::kUser, [&] { return Catalog({tree.path("t")}).open("one")->manifest.name; });
  EXPECT_EQ(found, "one");
}

TEST(Catalog, AFamilyOrATemplateMayBeALink) {
  const Tree tree;
  tree.write("elsewhere/one.toml", minimal("one"));
  tree.write("two", minimal("two"));
  tree.write("t/file.txt", "");
  tree.link(tree.path("elsewhere"), "t/family");
  tree.link(tree.path("two"), "t/two.toml");
  tree.link(tree.path("nowhere"), "t/broken.toml");
  Catalog catalog({tree.path("t")});
  EXPECT_EQ(catalog.names(), (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(catalog.open("one")->manifest.file, tree.path("t/family/one.toml"));
  EXPECT_EQ(catalog.open("two")->manifest.file, tree.path("t/two.toml"));
}

TEST(Catalog, ATemplateInAFamilyIsFoundAgainWhereItWasMoved) {
  const Tree tree;
  tree.write("one.toml", minimal("one"));
  Catalog catalog({tree.path()});
  EXPECT_EQ(catalog.open("one")->directory, tree.path());
  tree.write("family/one.toml", minimal("one"));
  expect_error(Errc::manifest,
               {"two templates are called 'one'", tree.path("one.toml"), tree.path("family/one.toml")},
               [&] { catalog.open("one"); });
  tree.remove("one.toml");
  EXPECT_EQ(catalog.open("one")->directory, tree.path("family"));
  EXPECT_EQ(catalog.names(), std::vector<std::string>{"one"});
  expect_error(Errc::manifest, {"two templates are called 'one'", "one from memory", "family/one.toml"}, [&] {
    catalog.add({minimal("one"), "", ""});
  });
}

TEST(Catalog, AFileOrADirectoryMayBeAddedLater) {
  const Tree tree;
  tree.write("t/one.toml", minimal("one"));
  tree.write("more/two.toml", minimal("two"));
  tree.write("more/family/three.toml", minimal("three"));
  tree.write("files/four.toml", minimal("four"));
  tree.write("files/five.toml", minimal("five"));
  Catalog catalog({tree.path("t")});
  catalog.add_path(tree.path("more/"));
  catalog.add_path(tree.path("files/four.toml"));
  catalog.add_path(tree.path("more"));
  EXPECT_EQ(catalog.names(), (std::vector<std::string>{"four", "one", "three", "two"}));
  EXPECT_EQ(catalog.open("three")->directory, tree.path("more/family"));
  EXPECT_EQ(catalog.open("four")->root, tree.path("files"));
  expect_error(Errc::unknown_template, {"'five'", tree.path("more")}, [&] { catalog.open("five"); });
  EXPECT_EQ(catalog.directories(), std::vector<std::string>{tree.path("t")});
  expect_error(Errc::manifest, {"two templates are called 'four'"}, [&] {
    catalog.add({minimal("four"), "", ""});
  });
}

TEST(Catalog, WhatIsAddedMustBeADirectoryOrAManifest) {
  const Tree tree;
  tree.write("one.cu", "");
  tree.write("bad.toml", "format = 9\n");
  tree.write("other.toml", minimal("one"));
  Catalog catalog({});
  expect_error(Errc::io, {tree.path("nowhere"), "NAME.toml"},
               [&] { catalog.add_path(tree.path("nowhere")); });
  expect_error(Errc::invalid_argument, {"one.cu", "NAME.toml"},
               [&] { catalog.add_path(tree.path("one.cu")); });
  expect_error(Errc::manifest, {"bad.toml", "format"}, [&] { catalog.add_path(tree.path("bad.toml")); });
  expect_error(Errc::manifest, {"other.toml", "one.toml"},
               [&] { catalog.add_path(tree.path("other.toml")); });
}

TEST(Catalog, ParsesAgainWhenTheManifestChanged) {
  const Tree tree;
  tree.write("one.toml", minimal("one"));
  Catalog catalog({tree.path()});
  const auto before = catalog.open("one");
  tree.write("one.toml", minimal("one", "summary = \"new\"\n"));
  EXPECT_EQ(catalog.open("one")->manifest.summary, "new");
  EXPECT_EQ(before->manifest.summary, "");
  tree.remove("one.toml");
  expect_error(Errc::unknown_template, {"'one'"}, [&] { catalog.open("one"); });
}

TEST(Catalog, NoticesAnEditWithinTheClocksTick) {
  const Tree tree;
  Catalog catalog({tree.path()});
  for (int i = 0; i < 20; ++i) {  // edits of the same size in quick succession
    tree.write("one.toml", minimal("one", "summary = \"" + std::to_string(10 + i) + "\"\n"));
    EXPECT_EQ(catalog.open("one")->manifest.summary, std::to_string(10 + i));
  }
}

TEST(Catalog, ReadsTheSourceAnew) {
  const Tree tree;
  tree.write("one.toml", minimal("one"));
  tree.write("one.cu", "first");
  Catalog catalog({tree.path()});
  const auto opened = catalog.open("one");
  EXPECT_EQ(opened->kernel.read(), "first");
  tree.write("one.cu", "second");
  EXPECT_EQ(opened->kernel.read(), "second");
  tree.remove("one.cu");
  expect_error(Errc::source, {tree.path("one.cu"), "No such file"}, [&] { opened->kernel.read(); });
}

TEST(Catalog, UnknownTemplatesListWhatThereIs) {
  const Tree tree;
  tree.write("rms_norm.toml", minimal("rms_norm"));
  tree.write("softmax.toml", minimal("softmax"));
  Catalog catalog({tree.path()});
  expect_error(Errc::unknown_template,
               {"'rms_nom'", "did you mean 'rms_norm'?", "rms_norm softmax", tree.path()},
               [&] { catalog.open("rms_nom"); });
  for (const std::string& name : {std::string("../rms_norm"), std::string(""), std::string(".rms_norm"),
                                  std::string("rms_norm\0x", 10), std::string(5000, 'x')}) {
    expect_error(Errc::unknown_template, {"no template is called"}, [&] { catalog.open(name); });
  }
  expect_error(Errc::unknown_template, {"there are: none", "searched: no directory"},
               [] { Catalog({}).open("x"); });
  expect_error(Errc::unknown_template, {"searched: no directory); set THIS"},
               [] { Catalog({}, "set THIS").open("x"); });
}

TEST(Catalog, UnknownTemplatesListNoInternalOnes) {
  const Tree tree;
  tree.write("one.toml", minimal("one"));
  tree.write("family/inner.toml", minimal("inner", "internal = true\n"));
  tree.write("broken.toml", "not toml at all [");
  Catalog catalog({tree.path()});
  for (int round = 0; round < 2; ++round) {
    expect_error(Errc::unknown_template, {"there are: broken one (searched"}, [&] { catalog.open("x"); });
    EXPECT_TRUE(catalog.open("inner")->manifest.internal) << "the next round finds it in the index";
  }
}

TEST(Catalog, UnknownTemplatesNameADirectoryThatDoesNotExist) {
  const Tree tree;
  tree.write("a/one.toml", minimal("one"));
  expect_error(Errc::unknown_template,
               {"(searched: " + tree.path("missing") + " (does not exist), " + tree.path("a") + ')'}, [&] {
                 Catalog({tree.path("missing"), tree.path("a")}).open("x");
               });
}

TEST(Catalog, TwoTemplatesOfOneNameAreAnError) {
  const Tree tree;
  tree.write("a/one.toml", minimal("one"));
  tree.write("b/one.toml", minimal("one"));
  Catalog catalog({tree.path("a"), tree.path("b")});
  expect_error(Errc::manifest,
               {"two templates are called 'one'", tree.path("a/one.toml"), tree.path("b/one.toml")},
               [&] { catalog.open("one"); });
}

TEST(Catalog, OneDirectoryByTwoNamesIsOne) {
  const Tree tree;
  tree.write("a/one.toml", minimal("one"));
  tree.link(tree.path("a"), "b");
  Catalog catalog({tree.path("a"), tree.path("b"), tree.path("a/../a"), tree.path("a/")});
  EXPECT_EQ(catalog.directories().size(), 2u);
  EXPECT_EQ(catalog.open("one")->manifest.name, "one");
  EXPECT_EQ(catalog.names(), std::vector<std::string>{"one"});
}

TEST(Catalog, TheNameInsideMustBeThatOfTheFile) {
  const Tree tree;
  tree.write("one.toml", minimal("two"));
  Catalog catalog({tree.path()});
  expect_error(Errc::manifest, {tree.path("one.toml"), "name is 'two'", "two.toml"},
               [&] { catalog.open("one"); });
  expect_error(Errc::manifest, {"name is 'two'"}, [&] { catalog.open("one"); });
}

TEST(Catalog, ManifestErrorsNameTheFile) {
  const Tree tree;
  tree.write("one.toml", "format = 2\n[template]\n");
  Catalog catalog({tree.path()});
  expect_error(Errc::manifest, {tree.path("one.toml") + ":1: format"}, [&] { catalog.open("one"); });
}

TEST(Catalog, NamesListsWithoutParsing) {
  const Tree tree;
  tree.write("b.toml", "not toml at all [");
  tree.write("a.toml", minimal("a"));
  tree.write(".hidden.toml", "");
  tree.write("notes.txt", "");
  tree.write("family/c.toml", "");
  tree.write("family/deeper/d.toml", "");
  std::filesystem::create_directory(tree.path("directory.toml"));
  Catalog catalog({tree.path(), tree.path("missing")});
  catalog.add({minimal("z"), "source", ""});
  EXPECT_EQ(catalog.names(), (std::vector<std::string>{"a", "b", "c", "z"}));
}

TEST(Catalog, TakesTemplatesFromMemory) {
  Catalog catalog({});
  const auto added = catalog.add(
      {minimal("m", "[reference]\nsource = \"r.cu\"\ninstantiate = \"r\"\ngrid = [1]\nblock = [1]\n"),
       "kernel", "reference"});
  EXPECT_EQ(catalog.open("m"), added);
  EXPECT_EQ(added->kernel.read(), "kernel");
  EXPECT_EQ(added->reference.read(), "reference");
  EXPECT_EQ(added->directory, "");
  EXPECT_EQ(added->manifest.file, "<memory>");
}

TEST(Catalog, MemoryTemplatesMustNotTakeANameThatIsThere) {
  const Tree tree;
  tree.write("one.toml", minimal("one"));
  Catalog catalog({tree.path()});
  expect_error(Errc::manifest, {"two templates are called 'one'", "memory", tree.path("one.toml")}, [&] {
    catalog.add({minimal("one"), "s", ""});
  });
  catalog.add({minimal("two"), "s", ""});
  expect_error(Errc::manifest, {"two templates are called 'two'", "both from memory"}, [&] {
    catalog.add({minimal("two"), "s", ""});
  });
  tree.write("two.toml", minimal("two"));
  expect_error(Errc::manifest, {"two templates are called 'two'", "memory"}, [&] { catalog.open("two"); });
}

TEST(Catalog, MemoryTemplatesNeedTheirReference) {
  Catalog catalog({});
  const std::string manifest =
      minimal("m", "[reference]\nsource = \"r.cu\"\ninstantiate = \"r\"\ngrid = [1]\nblock = [1]\n");
  expect_error(Errc::manifest, {"'m'", "[reference]", "not given"}, [&] {
    catalog.add({manifest, "kernel", ""});
  });
  expect_error(Errc::manifest, {"<memory>:1:"}, [&] { catalog.add({"format = 3", "", ""}); });
}

TEST(Catalog, ServesManyThreads) {
  const Tree tree;
  for (const char* name : {"a", "b", "c"}) tree.write(std::string(name) + ".toml", minimal(name));
  Catalog catalog({tree.path()});
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const std::string name(1, static_cast<char>('a' + i % 3));
        EXPECT_EQ(catalog.open(name)->manifest.name, name);
        EXPECT_EQ(catalog.names().size(), 3u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Catalog, AForkedChildHasWhatItsParentHad) {
  const Tree tree;
  tree.write("file.toml", minimal("file"));
  Catalog catalog({tree.path()});
  const auto from_memory = catalog.add({minimal("memory"), "source", ""});
  const auto from_file = catalog.open("file");
  EXPECT_EQ(testing::in_child([&] {
              if (catalog.open("memory") != from_memory || catalog.open("file") != from_file) return 1;
              if (catalog.names() != std::vector<std::string>{"file", "memory"}) return 2;
              catalog.add({minimal("own"), "source", ""});
              tree.write("file.toml", minimal("file", "summary = \"edited\"\n"));
              if (catalog.open("file")->manifest.summary != "edited") return 3;
              return testing::in_child([&] { return catalog.open("own") && catalog.open("memory") ? 0 : 4; });
            }),
            0);
  EXPECT_EQ(catalog.names(), (std::vector<std::string>{"file", "memory"})) << "what a child adds is its own";
  tree.remove("file.toml");
  expect_error(Errc::unknown_template, {"'file'"}, [&] { catalog.open("file"); });
}

TEST(Catalog, AForkWhileOthersOpenAndAddLeavesTheChildAWholeOne) {
  if (testing::cannot_fork_busy()) GTEST_SKIP() << testing::cannot_fork_busy();
  const Tree tree;
  tree.write("file.toml", minimal("file"));
  Catalog catalog({tree.path()});
  std::atomic<bool> stop{false};
  std::atomic<int> added{0};
  std::thread opens([&] {
    while (!stop) catalog.open("file");
  });
  std::thread adds([&] {
    for (; added < 500 && !stop; ++added) catalog.add({minimal("m" + std::to_string(added)), "source", ""});
    while (!stop) catalog.names();
  });
  for (int i = 0; i < 100; ++i) {
    const int seen = added;
    ASSERT_EQ(testing::in_child([&] {
                if (const int m = seen - 1; m >= 0) catalog.open("m" + std::to_string(m));
                catalog.add({minimal("own"), "source", ""});
                return catalog.open("file")->manifest.name == "file" ? 0 : 1;
              }),
              0)
        << "fork " << i;
  }
  stop = true;
  opens.join();
  adds.join();
  EXPECT_GT(added, 0);
}

}  // namespace
}  // namespace kiln::source

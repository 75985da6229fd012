// The compiled bytes are the hashed bytes. Each test is a trap that could make them differ.
#include "compile/fixture.hpp"
#include "kiln/error.hpp"
#include "support/places.hpp"

namespace kiln::testing {
namespace {

namespace fs = std::filesystem;

class InvariantTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ask_.toolkit = real_toolkit();
    if (!ask_.toolkit.has_compiler()) GTEST_SKIP() << "no NVRTC on this machine";
  }
  static compile::Compiled build(const MadeUnit& m, const toolchain::Toolkit& toolkit) {
    compile::WorkerPool pool({.executable = std::string(places::kBuildDirectory) + "/kiln-worker",
                              .jobs = 1});  // a new process for every image
    return compile::compile({m.unit, m.closure, m.made}, toolkit, pool,
                            {.compile_limit = std::chrono::seconds(120)});
  }
  compile::Compiled build_in(const std::string& directory) const {
    return build(make_unit(directory, ask_), ask_.toolkit);
  }

  Tree tree_;
  Ask ask_;
};

TEST_F(InvariantTest, AFileInTheWorkingDirectoryIsNotTaken) {
  tree_.write("t/scale.toml", small_manifest("scale"));
  tree_.write("t/scale.cu", small_source("#include \"a.h\"\n", "out[i] = T(N + VALUE);"));
  tree_.write("t/a.h", "#define VALUE 1\n");
  tree_.write("cwd/a.h", "#define VALUE 2\n");
  const auto expected = build_in(tree_.at("t"));
  const fs::path cwd = fs::current_path();
  fs::current_path(tree_.at("cwd"));
  const auto image = build_in(tree_.at("t"));
  const auto in_thread_cwd = fs::current_path();
  fs::current_path(cwd);
  EXPECT_EQ(image.image, expected.image);
  EXPECT_EQ(image.unpublishable, "");
  EXPECT_EQ(in_thread_cwd, tree_.at("cwd"));
}

TEST_F(InvariantTest, FileMacroHoldsNoDirectoryAndIsTheSameUnderTwoPrefixes) {
  for (const char* prefix : {"one/t", "another/longer/prefix/t"}) {
    tree_.write(std::string(prefix) + "/scale.toml", small_manifest("scale"));
    tree_.write(std::string(prefix) + "/scale.cu",
                small_source("#include \"inner/a.h\"\n", "out[i] = T(which()[n]);"));
    tree_.write(std::string(prefix) + "/inner/a.h",
                "__device__ inline const char* which() { return __FILE__; }\n");
  }
  const auto a = build_in(tree_.at("one/t")), b = build_in(tree_.at("another/longer/prefix/t"));
  EXPECT_EQ(a.image, b.image);
  EXPECT_EQ(a.unpublishable, "");
  EXPECT_EQ(a.image.find(tree_.path()), std::string::npos);
  EXPECT_NE(a.image.find(".k0/inner/a.h"), std::string::npos) << "__FILE__ is what the compiler was given";
}

TEST_F(InvariantTest, HasIncludeSeesExactlyWhatTheKeySees) {
  tree_.write("t/scale.toml", small_manifest("scale"));
  tree_.write(
      "t/scale.cu",
      small_source("#if __has_include(\"maybe.h\")\n#define VALUE 2\n#else\n#define VALUE 1\n#endif\n",
                   "out[i] = T(N + VALUE);"));
  const auto before = make_unit(tree_.at("t"), ask_);
  const auto without = build(before, ask_.toolkit);
  tree_.write("t/maybe.h", "\n");
  const auto after = make_unit(tree_.at("t"), ask_);
  EXPECT_NE(before.made.key.specialisation, after.made.key.specialisation);
  EXPECT_NE(build(after, ask_.toolkit).image, without.image);
}

TEST_F(InvariantTest, AComputedHasIncludeIsServedButNotPublished) {
  tree_.write("t/scale.toml", small_manifest("scale"));
  for (const char* probe :
       {"#define HDR(x) <x.h>\n#if __has_include(HDR(maybe))\n#endif\n",
        "#define G(x) __has_include(<x>)\n#if G(maybe.h)\n#endif\n", "#define G(x) __has_include(#x)\n",
        "#define NAME \"maybe.h\"\n#if __has_include(NAME)\n#endif\n"}) {
    tree_.write("t/scale.cu", small_source(probe));
    EXPECT_NE(build_in(tree_.at("t")).unpublishable.find("__has_include"), std::string::npos) << probe;
  }
  tree_.write("t/scale.cu", small_source("#ifndef __has_include\n#define __has_include(x) 0\n#endif\n#if "
                                         "__has_include(\"maybe.h\")\n#endif\n"));
  EXPECT_EQ(build_in(tree_.at("t")).unpublishable, "") << "the usual guard, and a literal";
}

TEST_F(InvariantTest, NoFileCanLieBesideTheSource) {
  tree_.write("t/scale.toml", small_manifest("scale"));
  tree_.write("t/scale.cu", small_source("#include \"beside.h\"\n"));
  EXPECT_THROW(build_in(tree_.at("t")), CompileError);
  EXPECT_NE(fs::status(compile::kProgramDirectory).type(), fs::file_type::directory)
      << "nothing can be made in it";
}

TEST_F(InvariantTest, DateAndTimeAreServedButNotPublished) {
  tree_.write("t/scale.toml", small_manifest("scale"));
  tree_.write("t/scale.cu", small_source("#include \"stamp.h\"\n", "out[i] = T(stamp[n]);"));
  tree_.write("t/stamp.h", "__constant__ char stamp[] = __DATE__ __TIME__;\n");
  const auto compiled = build_in(tree_.at("t"));
  EXPECT_FALSE(compiled.image.empty());
  EXPECT_NE(compiled.unpublishable.find("__DATE__"), std::string::npos) << compiled.unpublishable;
}

TEST_F(InvariantTest, OneSpellingClaimedByTwoFilesIsCompiledAsTheScanResolvedIt) {
  tree_.write("t/scale.toml", small_manifest("scale"));
  tree_.write("t/scale.cu", small_source("#include \"sub/y.h\"\n#include <x.h>\n",
                                         "out[i] = T(FROM_SUB * 1000 + FROM_INC);"));
  tree_.write("t/sub/y.h", "#include \"x.h\"\n");
  tree_.write("t/sub/x.h", "#define FROM_SUB 11\n");
  tree_.write("inc/x.h", "#define FROM_INC 22\n");
  ask_.include_path = {tree_.at("inc")};
  const auto made = make_unit(tree_.at("t"), ask_);
  EXPECT_EQ(made.closure.files.size(), 3u);
  EXPECT_NO_THROW(build(made, ask_.toolkit)) << "either file alone leaves a name undefined";
}

TEST_F(InvariantTest, NestedRelativeIncludesResolveBesideTheirIncluder) {
  tree_.write("t/scale.toml", small_manifest("scale"));
  tree_.write("t/scale.cu", small_source("#include \"a/b/c.h\"\n", "out[i] = T(VALUE);"));
  tree_.write("t/a/b/c.h", "#include \"../d.h\"\n");
  tree_.write("t/a/d.h", "#include \"b/e.h\"\n");
  tree_.write("t/a/b/e.h", "#define VALUE 5\n");
  const auto made = make_unit(tree_.at("t"), ask_);
  EXPECT_EQ(made.closure.files.size(), 3u);
  EXPECT_EQ(build(made, ask_.toolkit).unpublishable, "");
}

TEST_F(InvariantTest, AnEditBetweenHashingAndCompilingIsServedButNotPublished) {
  tree_.write("t/scale.toml", small_manifest("scale"));
  tree_.write("t/scale.cu", small_source("#include \"a.h\"\n", "out[i] = T(VALUE);"));
  tree_.write("t/a.h", "#define VALUE 1\n");
  const auto made = make_unit(tree_.at("t"), ask_);
  tree_.write("t/a.h", "#define VALUE 2\n", true);
  const auto compiled = build(made, ask_.toolkit);
  EXPECT_FALSE(compiled.image.empty());
  EXPECT_NE(compiled.unpublishable.find("changed"), std::string::npos) << compiled.unpublishable;
}

TEST_F(InvariantTest, AnEditWithinTheClocksGranularityIsNoticed) {
  tree_.write("t/scale.toml", small_manifest("scale"));
  tree_.write("t/scale.cu", small_source("#include \"a.h\"\n", "out[i] = T(VALUE);"));
  const std::string header = tree_.write("t/a.h", "#define VALUE 1\n", true);
  const auto made = make_unit(tree_.at("t"), ask_);
  const auto time = fs::last_write_time(header);
  std::ofstream(header) << "#define VALUE 2\n";  // same size
  fs::last_write_time(header, time);             // and the same mtime
  EXPECT_TRUE(made.closure.changed().has_value());
}

TEST_F(InvariantTest, AComputedIncludeOutsideTheClosureIsServedButNotPublished) {
  tree_.write("t/scale.toml", small_manifest("scale"));
  // Macros put the name together, so a scan of the text cannot see it.
  const std::string source =
      small_source("#define STR2(x) #x\n#define STR(x) STR2(x)\n#define NAME hidden\n#include STR(NAME.h)\n",
                   "out[i] = T(VALUE);");
  tree_.write("t/scale.cu", source);
  tree_.write("t/hidden.h", "#define VALUE 3\n");
  const auto hidden = build_in(tree_.at("t"));
  EXPECT_NE(hidden.unpublishable.find("hidden.h"), std::string::npos) << hidden.unpublishable;
  EXPECT_NE(hidden.unpublishable.find("extra_includes"), std::string::npos);

  tree_.write("t/scale.toml", small_manifest("scale", "extra_includes = [\"hidden.h\"]\n"));
  const auto named = make_unit(tree_.at("t"), ask_);
  EXPECT_EQ(build(named, ask_.toolkit).unpublishable, "");
  tree_.write("t/hidden.h", "#define VALUE 4\n");
  EXPECT_NE(make_unit(tree_.at("t"), ask_).made.key, named.made.key);
}

TEST_F(InvariantTest, AnAbsoluteIncludeIsRefusedBeforeTheCompilerSeesIt) {
  tree_.write("t/scale.toml", small_manifest("scale"));
  tree_.write("t/scale.cu", small_source("#include \"" + tree_.write("outside/a.h", "\n") + "\"\n"));
  try {
    make_unit(tree_.at("t"), ask_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::source);
    EXPECT_NE(std::string(error.what()).find("outside/a.h"), std::string::npos) << error.what();
  }
}

TEST_F(InvariantTest, InternalLinkageSymbolsDoNotCarryTheProcess) {
  tree_.write("t/scale.toml", small_manifest("scale"));
  tree_.write("t/scale.cu",
              small_source("namespace { __device__ int counter; }\nstatic __device__ int other;\n",
                           "out[i] = T(atomicAdd(&counter, 1) + atomicAdd(&other, N));"));
  EXPECT_EQ(build_in(tree_.at("t")).image, build_in(tree_.at("t")).image);
}

TEST_F(InvariantTest, TheSameKeyGivesTheSameBytesInTwoProcessesAndDirectoriesCubIncluded) {
  if (ask_.toolkit.include_dirs.empty()) GTEST_SKIP() << "no toolkit headers on this machine";
  ask_.name = "cub_block_sum";
  ask_.values = {Dtype::bf16, 1024};
  const fs::path fixtures = fs::path(places::kSourceDirectory) / "tests/fixtures/templates";
  for (const char* prefix : {"a", "b/b/b/b"}) {
    fs::create_directories(tree_.at(prefix));
    for (const auto& entry : fs::directory_iterator(fixtures)) fs::copy(entry, tree_.at(prefix));
  }
  const auto a = make_unit(tree_.at("a"), ask_), b = make_unit(tree_.at("b/b/b/b"), ask_);
  EXPECT_EQ(a.made.text, b.made.text);
  const auto image_a = build(a, ask_.toolkit), image_b = build(b, ask_.toolkit);
  EXPECT_EQ(image_a.unpublishable, "");
  ASSERT_EQ(image_a.image.size(), image_b.image.size());
  EXPECT_TRUE(image_a.image == image_b.image);
}

TEST_F(InvariantTest, ASourceThatDoesNotCompileCarriesLogTemplateAndParameters) {
  tree_.write("t/scale.toml", small_manifest("scale"));
  tree_.write("t/scale.cu", small_source("", "out[i] = undefined_name;"));
  try {
    build_in(tree_.at("t"));
    FAIL();
  } catch (const CompileError& error) {
    EXPECT_EQ(error.code(), Errc::compile_failed);
    for (const char* part : {"scale T=f32 N=7", "sm_90a", "undefined_name", "\nscale.cu(4): error"}) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << " in " << error.what();
    }
    EXPECT_EQ(error.specialization(), "scale T=f32 N=7");
    EXPECT_NE(error.log().find("undefined_name"), std::string::npos);
    EXPECT_NE(error.options().find("-std=c++17"), std::string::npos);
  }
}

TEST_F(InvariantTest, AMissingIncludeNamesTheFile) {
  tree_.write("t/scale.toml", small_manifest("scale"));
  tree_.write("t/scale.cu", small_source("#include \"not_there.h\"\n"));
  try {
    build_in(tree_.at("t"));
    FAIL();
  } catch (const CompileError& error) {
    EXPECT_NE(std::string(error.what()).find("not_there.h"), std::string::npos) << error.what();
  }
}

TEST_F(InvariantTest, FactsAreThoseOfTheKernel) {
  tree_.write("t/scale.toml", small_manifest("scale"));
  tree_.write("t/scale.cu", small_source());
  const auto facts = build_in(tree_.at("t")).facts;
  ASSERT_EQ(facts.arguments.size(), 2u);
  EXPECT_EQ(facts.arguments[0].size, 8u);
  EXPECT_EQ(facts.arguments[1].size, 4u);
  EXPECT_GT(facts.registers, 0u);
  EXPECT_EQ(facts.compiler_version.substr(0, 1), "1");
  EXPECT_EQ(facts.lowered_name.substr(0, 2), "_Z");
}

}  // namespace
}  // namespace kiln::testing

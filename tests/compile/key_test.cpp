// A row for each change that must change the key, and for each change that must not.
#include <cstdlib>

#include "compile/fixture.hpp"

namespace kiln::testing {
namespace {

namespace fs = std::filesystem;

class KeyTest : public ::testing::Test {
 protected:
  KeyTest() {
    populate(tree_);
    ask_.toolkit = fake_toolkit();
    ask_.toolkit.include_dirs = {tree_.at("toolkit")};
    ask_.include_path = {tree_.at("inc1"), tree_.at("inc2")};
  }
  static void populate(const Tree& tree, const std::string& prefix = "") {
    tree.write(prefix + "t/scale.toml",
               small_manifest("scale", "options = [\"-fmad=true\", \"-ftz=true\"]\n"));
    tree.write(
        prefix + "t/scale.cu",
        small_source(
            "#include \"a.h\"\n#include <one.h>\n#include <two.h>\n#include <kit.h>\n#include <absent.h>\n"));
    tree.write(prefix + "t/a.h", "#include \"deep/b.h\"\n");
    tree.write(prefix + "t/deep/b.h", "// b\n");
    tree.write(prefix + "inc1/one.h", "// one\n");
    tree.write(prefix + "inc2/two.h", "// two\n");
    tree.write(prefix + "toolkit/kit.h", "#include \"kit_inner.h\"\n");
    tree.write(prefix + "toolkit/kit_inner.h", "// inner\n");
  }
  compile::MadeKey key(const Ask& ask) const { return make_unit(tree_.at("t"), ask).made; }
  compile::MadeKey key() const { return key(ask_); }

  void expect_specialisation_changes(const compile::MadeKey& before) const {
    const auto after = key();
    EXPECT_NE(after.key.specialisation, before.key.specialisation);
    EXPECT_EQ(after.key.toolchain, before.key.toolchain);
  }
  void expect_toolchain_changes(const compile::MadeKey& before, const Ask& ask) const {
    const auto after = key(ask);
    EXPECT_EQ(after.key.specialisation, before.key.specialisation) << after.text;
    EXPECT_NE(after.key.toolchain, before.key.toolchain);
  }
  void expect_same(const compile::MadeKey& before, const compile::MadeKey& after) const {
    EXPECT_EQ(after.key, before.key);
    EXPECT_EQ(after.text, before.text);
  }

  Tree tree_;
  Ask ask_;
};

// ---- must change the specialisation half
// -----------------------------------------------------------------------------------------

TEST_F(KeyTest, FollowsFromItsTextAlone) {
  const auto made = key();
  EXPECT_EQ(compile::key_of_text(made.text), made.key);
  EXPECT_NE(compile::key_of_text(made.text + "x").toolchain, made.key.toolchain);
  EXPECT_EQ(compile::key_of_text(made.text + "x").specialisation, made.key.specialisation);
  EXPECT_NE(compile::key_of_text("x" + made.text).specialisation, made.key.specialisation);
}
TEST_F(KeyTest, ChangesWithASourceByte) {
  const auto before = key();
  tree_.write(
      "t/scale.cu",
      small_source(
          "#include \"a.h\"\n#include <one.h>\n#include <two.h>\n#include <kit.h>\n#include <absent.h>\n "));
  expect_specialisation_changes(before);
}
TEST_F(KeyTest, ChangesWithADirectHeaderByte) {
  const auto before = key();
  tree_.write("inc2/two.h", "// twp\n");
  expect_specialisation_changes(before);
}
TEST_F(KeyTest, ChangesWithATransitiveHeaderByte) {
  const auto before = key();
  tree_.write("t/deep/b.h", "// c\n");
  expect_specialisation_changes(before);
}
TEST_F(KeyTest, ChangesWithAParameter) {
  const auto before = key();
  Ask other = ask_;
  other.values = {Dtype::f32, 8};
  EXPECT_NE(key(other).key.specialisation, before.key.specialisation);
  other.values = {Dtype::i32, 7};
  EXPECT_NE(key(other).key.specialisation, before.key.specialisation);
}
TEST_F(KeyTest, ChangesWithAnOption) {
  const auto before = key();
  tree_.write("t/scale.toml", small_manifest("scale", "options = [\"-fmad=false\", \"-ftz=true\"]\n"));
  expect_specialisation_changes(before);
}
TEST_F(KeyTest, ChangesWithTheOrderOfOptions) {
  const auto before = key();
  tree_.write("t/scale.toml", small_manifest("scale", "options = [\"-ftz=true\", \"-fmad=true\"]\n"));
  expect_specialisation_changes(before);
}
TEST_F(KeyTest, ChangesWithADefine) {
  const auto before = key();
  tree_.write(
      "t/scale.toml",
      small_manifest("scale", "options = [\"-fmad=true\", \"-ftz=true\"]\ndefine = { WITH = \"1\" }\n"));
  expect_specialisation_changes(before);
}
TEST_F(KeyTest, ChangesWithTheLanguageStandard) {
  const auto before = key();
  tree_.write("t/scale.toml",
              small_manifest("scale", "options = [\"-fmad=true\", \"-ftz=true\"]\nstd = \"c++20\"\n"));
  expect_specialisation_changes(before);
}
TEST_F(KeyTest, ChangesWithTheArch) {
  const auto before = key();
  Ask other = ask_;
  other.arch = "sm_80";
  EXPECT_NE(key(other).key.specialisation, before.key.specialisation);
}
TEST_F(KeyTest, ChangesWhenAHeaderThatWasAbsentAppears) {
  const auto before = key();
  tree_.write("inc2/absent.h", "// here\n");
  expect_specialisation_changes(before);
}
TEST_F(KeyTest, ChangesWhenAnEarlierDirectoryShadowsAHeader) {
  const auto before = key();
  tree_.write("inc1/two.h", "// another\n");
  expect_specialisation_changes(before);
}
TEST_F(KeyTest, ChangesWithTheTemplatesName) {
  const auto before = key();
  tree_.write("t/other.toml", [] {
    std::string text = small_manifest("other", "options = [\"-fmad=true\", \"-ftz=true\"]\n");
    return text.replace(text.find("other.cu"), 8, "scale.cu");
  }());
  Ask other = ask_;
  other.name = "other";
  EXPECT_NE(key(other).key.specialisation, before.key.specialisation);
}

// ---- must change the toolchain half only
// -------------------------------------------------------------------------------------------

TEST_F(KeyTest, ToolchainChangesWithTheCompilersBuildId) {
  Ask other = ask_;
  other.toolkit.compiler_identity = "aa12";
  expect_toolchain_changes(key(), other);
}
TEST_F(KeyTest, ToolchainChangesWithTheBuiltinsBuildId) {
  Ask other = ask_;
  other.toolkit.builtins_identity = "bb23";
  expect_toolchain_changes(key(), other);
}
TEST_F(KeyTest, ToolchainChangesWithAToolkitHeaderByte) {
  const auto before = key();
  tree_.write("toolkit/kit_inner.h", "// Inner\n");
  expect_toolchain_changes(before, ask_);
}
TEST_F(KeyTest, ToolkitHeadersNeverEnterTheSpecialisationHalf) {
  const auto before = key();
  Ask other = ask_;
  other.toolkit.include_dirs = {};
  expect_toolchain_changes(before, other);
  EXPECT_EQ(key(other).specialisation_text(), before.specialisation_text());
}
TEST_F(KeyTest, AProjectFileReachedOnlyThroughTheToolkitIsOfTheToolchainHalf) {
  tree_.write("toolkit/kit_inner.h", "#include <hook.h>\n");
  const auto before = key();
  EXPECT_FALSE(before.project_header_through_toolkit);
  tree_.write("inc1/hook.h", "// hook\n");
  expect_toolchain_changes(before, ask_);
  EXPECT_TRUE(key().project_header_through_toolkit);
}

// ---- must change nothing
// -----------------------------------------------------------------------------------------------------------

TEST_F(KeyTest, IgnoresModificationTimes) {
  const auto before = key();
  for (const auto& entry : fs::recursive_directory_iterator(tree_.path())) {
    if (entry.is_regular_file())
      fs::last_write_time(entry, fs::file_time_type::clock::now() - std::chrono::hours(100));
  }
  expect_same(before, key());
}
TEST_F(KeyTest, IgnoresTheWorkingDirectory) {
  const auto before = key();
  const fs::path cwd = fs::current_path();
  tree_.write("cwd/a.h", "// decoy\n");
  fs::current_path(tree_.at("cwd"));
  const auto after = key();
  fs::current_path(cwd);
  expect_same(before, after);
}
TEST_F(KeyTest, IgnoresHome) {
  const auto before = key();
  const char* home = std::getenv("HOME");
  const std::string saved = home ? home : "";
  ::setenv("HOME", "/nonexistent-home", 1);
  const auto after = key();
  if (home)
    ::setenv("HOME", saved.c_str(), 1);
  else
    ::unsetenv("HOME");
  expect_same(before, after);
}
TEST_F(KeyTest, IgnoresThePrefix) {
  const Tree elsewhere;
  populate(elsewhere, "a/much/longer/prefix/");
  Ask other = ask_;
  const std::string prefix = elsewhere.at("a/much/longer/prefix/");
  other.include_path = {prefix + "inc1", prefix + "inc2"};
  other.toolkit.include_dirs = {prefix + "toolkit"};
  expect_same(key(), make_unit(prefix + "t", other).made);
}
TEST_F(KeyTest, IgnoresASymlinkInThePath) {
  fs::create_directory_symlink(tree_.path(), tree_.at("link"));
  Ask other = ask_;
  other.include_path = {tree_.at("link/inc1"), tree_.at("link/inc2")};
  other.toolkit.include_dirs = {tree_.at("link/toolkit")};
  expect_same(key(), make_unit(tree_.at("link/t"), other).made);
}
TEST_F(KeyTest, IgnoresTheOrderOfDirectoriesThatDoNotShadowEachOther) {
  Ask other = ask_;
  other.include_path = {tree_.at("inc2"), tree_.at("inc1")};
  expect_same(key(), key(other));
}
TEST_F(KeyTest, IgnoresUnrelatedDirectories) {
  tree_.write("unrelated/zzz.h", "// nothing\n");
  Ask other = ask_;
  other.include_path = {tree_.at("unrelated"), tree_.at("inc1"), tree_.at("not-there"), tree_.at("inc2")};
  expect_same(key(), key(other));
}
TEST_F(KeyTest, IgnoresHowTheArchIsSpelled) {
  const auto before = key();
  for (const char* spelling : {"90", "sm_90", "sm_90a"}) {
    Ask other = ask_;
    other.arch = spelling;
    expect_same(before, key(other));
  }
}
TEST_F(KeyTest, IgnoresWhetherADefaultWasGiven) {
  Ask other = ask_;
  other.values = {"f32"};
  expect_same(key(), key(other));
}
TEST_F(KeyTest, AToolkitDirectoryGivenAsAProjectOneStaysToolkit) {
  fs::create_directory_symlink(tree_.at("toolkit"), tree_.at("same-kit"));
  Ask other = ask_;
  other.include_path.insert(other.include_path.begin(), tree_.at("same-kit"));
  expect_same(key(), key(other));
}

// ---- the text
// ------------------------------------------------------------------------------------------------------------------------

TEST_F(KeyTest, TextHoldsNoHostPath) {
  const auto made = key();
  EXPECT_EQ(made.text.find(tree_.path()), std::string::npos) << made.text;
  EXPECT_EQ(made.text.find("/tmp"), std::string::npos);
}
TEST_F(KeyTest, TextIsParsedBackFieldByField) {
  const auto made = key();
  const auto fields = compile::parse_key_text(made.text);
  ASSERT_GT(fields.size(), 10u);
  EXPECT_EQ(fields[0].label, "kiln-key");
  EXPECT_EQ(fields[1].label, "template");
  EXPECT_EQ(fields[1].values.at(0), "scale");
  int includes = 0, headers = 0;
  for (const auto& f : fields) includes += f.label == "include", headers += f.label == "header";
  EXPECT_EQ(includes, 4);  // a.h, deep/b.h, one.h, two.h
  EXPECT_EQ(headers, 2);
  EXPECT_EQ(compile::toolchain_section(made.text), made.toolchain_at);
}
/// The label and the values of each field. A digest of 32 hex digits is shown as DIGEST.
std::string shape_of(const std::string& text) {
  std::string out;
  for (const auto& field : compile::parse_key_text(text)) {
    out += field.label;
    for (const std::string& value : field.values) out += ' ' + (Digest::from_hex(value) ? "DIGEST" : value);
    out += '\n';
  }
  return out;
}
TEST_F(KeyTest, TheGrammarOfItsTextIsThatOfItsSchema) {
  EXPECT_EQ(shape_of(key().text),
            "kiln-key 2\ntemplate scale\narch sm_90a\nsource DIGEST\n"
            "include  \"a.h\" .k0/a.h DIGEST\ninclude  <one.h> .k1/one.h DIGEST\n"
            "include  <two.h> .k2/two.h DIGEST\ninclude .k0/a.h \"deep/b.h\" .k0/deep/b.h DIGEST\n"
            "name scale<float, 7>\nparameter T f32\nparameter N 7\n"
            "option -std=c++17\noption -DNDEBUG\noption -fmad=true\noption -ftz=true\n"
            "toolchain 1\nfacts 2\nnvrtc aa11\nbuiltins bb22\n"
            "kiln-option --no-cache\nkiln-option --modify-stack-limit=false\n"
            "kiln-option --ptxas-options=-v\nkiln-option --time=-\n"
            "header .t0/kit.h DIGEST\nheader .t0/kit_inner.h DIGEST\n")
      << "Stores and bundles hold texts of the old grammar. Raise kKeySchema, then write the new text here.";
}
TEST_F(KeyTest, AValueCannotImitateAField) {
  const std::string_view text = "option 15:x\ntoolchain 1:1\nname 1:n\n";
  EXPECT_EQ(compile::toolchain_section(text), text.size()) << "a line inside a value is not the section";
  const auto fields = compile::parse_key_text(text);
  ASSERT_FALSE(fields.empty());
  EXPECT_EQ(fields[0].values.at(0), "x\ntoolchain 1:1");
}
TEST_F(KeyTest, MalformedTextStopsTheParserWithoutHarm) {
  for (const char* text : {"x 9:abc\n", "x 99999999999999999999:a\n", "x", "x 3abc\n", "", "\n\n"}) {
    compile::parse_key_text(text);
    EXPECT_LE(compile::toolchain_section(text), std::string_view(text).size()) << text;
  }
}

}  // namespace
}  // namespace kiln::testing

// The worked example of docs/guide/bring-a-kernel.md and bring-a-kernel-by-hand.md
// (tests/fixtures/foreign/example). The pages print its files, the files compile, and `kiln import` writes the
// manifest that the first page prints.
#include <filesystem>

#include "docs/page.hpp"
#include "support/places.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {
using nlohmann::json;

std::string example(const std::string& file) { return read_source("tests/fixtures/foreign/example/" + file); }

TEST(ForeignExamplePage, ItsFilesAreThoseThatThePagesPrint) {
  const auto header = blocks(read_source("docs/guide/bring-a-kernel.md"), "cpp");
  const std::string page = read_source("docs/guide/bring-a-kernel-by-hand.md");
  const auto cpp = blocks(page, "cpp"), toml = blocks(page, "toml");
  ASSERT_EQ(header.size(), 1u);
  ASSERT_GE(cpp.size(), 1u);
  ASSERT_EQ(toml.size(), 3u);
  EXPECT_EQ(example("include/scale/scale_rows.cuh"), header[0]);
  EXPECT_EQ(example("stub_checks.h"), cpp[0]);
  EXPECT_EQ(example("scale_rows.toml"), toml[0] + '\n' + toml[1] + '\n' + toml[2]);
}

class ForeignExample : public KilnCompiler {
 protected:
  json compile(const Arguments& values, const std::string& arch) {
    Arguments all = {"compile", "scale_rows"};
    all.insert(all.end(), values.begin(), values.end());
    for (const std::string& more :
         {std::string("--arch"), arch, std::string("--template-path"),
          std::string(places::kSourceDirectory) + "/tests/fixtures/foreign/example",
          std::string("--cache-dir"), cache(), std::string("--strict"), std::string("--json")})
      all.push_back(more);
    const Finished done = kiln(all);
    EXPECT_EQ(done.status, 0) << arch << '\n' << done.err << done.out;
    return done.json();
  }
};

TEST_F(ForeignExample, CompilesAsPrinted) {
  for (const char* arch : {"sm_80", "sm_90a", "sm_100a", "sm_120a"}) {
    const json half = compile({"T=f16", "ACT=clipped"}, arch);
    EXPECT_EQ(half.value("name_expression", ""), "scale::scale_rows<__half, scale::Clipped, 256>");
    EXPECT_TRUE(half.at("unpublishable").is_null()) << half.dump();
    EXPECT_EQ(half.at("exports"), json({{"SMEM", 32}}));
    EXPECT_EQ(half.at("globals").at("bias").value("bytes", 0), 256);
    EXPECT_EQ(compile({"T=f32", "THREADS=128"}, arch).at("exports"), json({{"SMEM", 16}}));
    const json shown = kiln({"show", half.value("key", ""), "--cache-dir", cache(), "--json"}).json();
    ASSERT_EQ(shown.at("arguments").size(), 1u);
    EXPECT_EQ(shown.at("arguments")[0].value("size", 0), 32) << "scale::Params<__half>, as the page says";
  }
}

TEST_F(ForeignExample, ImportWritesTheManifestThatThePagePrints) {
  const auto printed = blocks(read_source("docs/guide/bring-a-kernel.md"), "toml");
  ASSERT_EQ(printed.size(), 1u);
  std::filesystem::create_directories(path("include/scale"));
  write("include/scale/scale_rows.cuh", example("include/scale/scale_rows.cuh"));
  const Finished done =
      kiln({"import", path("include/scale/scale_rows.cuh"), "scale_rows", "Act=scale::Clipped", "-I",
            path("include"), "-o", path("scale_rows.toml"), "--arch", "sm_90a"});
  ASSERT_EQ(done.status, 0) << done.err;
  const auto written = base::read_file(path("scale_rows.toml"));
  ASSERT_TRUE(written);
  EXPECT_EQ(written->bytes, printed[0]);
}

TEST_F(ForeignExample, LintFindsNoErrorAndNoWarning) {
  const Finished done = kiln({"lint", "scale_rows", "--compile", "--arch", "sm_90a", "--template-path",
                              std::string(places::kSourceDirectory) + "/tests/fixtures/foreign/example",
                              "--cache-dir", cache()});
  EXPECT_EQ(done.status, 0) << done.out << done.err;
}

}  // namespace
}  // namespace kiln::test

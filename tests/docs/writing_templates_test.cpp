// The worked example of docs/guide/write-a-template.md: the printed files are clean and compile for every arch,
// and the commands do what the page says.
#include "docs/writing_templates_command.hpp"
#include "support/places.hpp"

namespace kiln::test {
namespace {

TEST_F(WritingTemplates, LintFindsNothingAtAll) {
  ASSERT_EQ(commands("lint").size(), 1u);
  const Finished done = kiln(commands("lint")[0]);
  EXPECT_EQ(done.status, 0) << done.out << done.err;
  EXPECT_EQ(done.out, "1 template, 1 compiled: 0 errors, 0 warnings, 0 notes\n") << "as the page says";
}

TEST_F(WritingTemplates, CompilesForEveryArchWithoutSpills) {
  for (const char* arch : {"sm_80", "sm_90a", "sm_100a", "sm_120a"}) {
    for (const Arguments& values :
         {Arguments{"T=bf16", "D=4096"}, {"T=f32", "D=4097", "THREADS=64"}, {"T=f16", "D=11008", "VEC=2"}}) {
      Arguments words{"compile", "add_bias_gelu", "--strict", "--json", "--arch", arch};
      words.insert(words.end(), values.begin(), values.end());
      const Finished done = kiln(words);
      EXPECT_EQ(done.status, 0) << arch << '\n' << done.err << done.out;
      EXPECT_TRUE(done.json().at("unpublishable").is_null()) << done.out;
      EXPECT_EQ(done.json().at("spill_bytes"), 0) << done.out;
    }
  }
}

TEST_F(WritingTemplates, ItsCommandsDoWhatTheySay) {
  ASSERT_EQ(commands("compile").size() + commands("templates").size() + commands("lint").size() +
                commands("run").size(),
            example_.commands.size());
  ASSERT_FALSE(commands("compile").empty());
  const Finished compiled = kiln(commands("compile")[0]);
  EXPECT_EQ(compiled.status, 0) << compiled.err;
  EXPECT_EQ(compiled.out.rfind("add_bias_gelu for sm_90a: compiled in ", 0), 0u) << compiled.out;
  EXPECT_NE(compiled.out.find("\n  params     T=bf16 D=4096 VEC=8 THREADS=256\n"), std::string::npos)
      << compiled.out;
  EXPECT_EQ(kiln({"templates", "add_bias_gelu"}).status, 0);
}

TEST_F(WritingTemplates, RunMakesItsDataAndLaunches) {
  // The fake driver computes nothing. The test checks data of every shape, a launch and a time.
  ASSERT_EQ(commands("run").size(), 1u);
  Arguments words = commands("run")[0];
  words.erase(std::find(words.begin(), words.end(), "--check"));
  words.push_back("--json");
  const Finished done = kiln(words, {{"KILN_LIBCUDA", places::kFakeCuda}});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(done.json().at("sizes").size(), 4u) << done.out;
}

}  // namespace
}  // namespace kiln::test

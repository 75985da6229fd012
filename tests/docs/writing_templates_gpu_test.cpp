// The worked example of docs/guide/write-a-template.md on a GPU: it gives the results of its reference.
#include "docs/writing_templates_command.hpp"
#include "tools/on_gpu.hpp"

namespace kiln::test {
namespace {

class WritingTemplatesOnGpu : public OnGpu<WritingTemplates> {};

TEST_F(WritingTemplatesOnGpu, IsWhatItsReferenceSays) {
  ASSERT_EQ(commands("run").size(), 1u);
  for (const Arguments& values : {Arguments{"T=bf16", "D=4096", "rows=1,64,4096"},
                                  {"T=f16", "D=4097", "rows=1,31,4095"},
                                  {"T=f32", "D=7", "rows=1,100003", "THREADS=64"},
                                  {"T=bf16", "D=8", "rows=1,33", "stride_x=24,8", "stride_out=16"}}) {
    Arguments words{"run", "add_bias_gelu", "--check", "--json"};
    words.insert(words.end(), values.begin(), values.end());
    const Finished done = kiln(words, {{"KILN_LIBCUDA", "libcuda.so.1"}});
    EXPECT_EQ(done.status, 0) << done.out << done.err;
  }
  const Finished page = kiln(commands("run")[0], {{"KILN_LIBCUDA", "libcuda.so.1"}});
  EXPECT_EQ(page.status, 0) << page.out << page.err;
}

}  // namespace
}  // namespace kiln::test

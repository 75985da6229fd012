// The commands of docs/reference/templates.md on a GPU: every shipped template gives the results of its reference.
#include "docs/run_commands.hpp"
#include "tools/on_gpu.hpp"

namespace kiln::test {
namespace {

class TemplatesPageOnGpu : public OnGpu<KilnCompiler> {};

TEST_F(TemplatesPageOnGpu, EachCommandChecksAndTimes) {
  const auto commands = run_commands(read_source("docs/reference/templates.md"));
  EXPECT_FALSE(commands.empty());
  for (const Arguments& words : commands) {
    const Finished done = kiln(words, {{"KILN_TEMPLATE_PATH", ""}, {"KILN_LIBCUDA", "libcuda.so.1"}});
    EXPECT_EQ(done.status, 0) << done.out << done.err;
  }
}

}  // namespace
}  // namespace kiln::test

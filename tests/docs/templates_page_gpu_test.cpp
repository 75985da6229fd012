// What docs/templates.md tells a newcomer to run, on a GPU: every shipped template is what its reference
// says.
#include "docs/run_commands.hpp"
#include "toolchain/driver.hpp"

namespace kiln::test {
namespace {

class TemplatesPageOnGpu : public KilnCompiler {
 protected:
  void SetUp() override {
    const toolchain::Driver* driver = toolchain::Driver::get();
    if (!driver || driver->cuInit(0) != 0) GTEST_SKIP() << "no GPU on this machine";
    KilnCompiler::SetUp();
  }
};

TEST_F(TemplatesPageOnGpu, EachCommandChecksAndTimes) {
  const auto commands = run_commands(read_source("docs/templates.md"));
  EXPECT_FALSE(commands.empty());
  for (const Arguments& words : commands) {
    const Finished done = kiln(words, {{"KILN_TEMPLATE_PATH", ""}, {"KILN_LIBCUDA", "libcuda.so.1"}});
    EXPECT_EQ(done.status, 0) << done.out << done.err;
  }
}

}  // namespace
}  // namespace kiln::test

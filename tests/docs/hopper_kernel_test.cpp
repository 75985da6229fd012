// The kernel of docs/guide/hopper-kernel.md: the printed files are clean, compile, and get the right tensor maps.
#include "docs/hopper_kernel.hpp"
#include "support/places.hpp"

namespace kiln::test {
namespace {

TEST_F(HopperKernel, LintFindsNothingAtAll) {
  const Finished done = kiln(command("lint"));
  EXPECT_EQ(done.status, 0) << done.out << done.err;
  EXPECT_EQ(done.out, "1 template, 1 compiled: 0 errors, 0 warnings, 0 notes\n") << "as the page says";
}

TEST_F(HopperKernel, CompilesWithoutSpillsAndWarnings) {
  EXPECT_EQ(kiln(command("compile")).status, 0);
  for (const Arguments& values : {Arguments{"T=bf16", "N=4096", "K=4096"},
                                  {"T=f16", "N=2000", "K=264", "BN=192"},
                                  {"T=bf16", "N=8", "K=8", "BN=64"}}) {
    Arguments words{"compile", "hopper_gemm", "--strict", "--json", "--arch", "sm_90a"};
    words.insert(words.end(), values.begin(), values.end());
    const Finished done = kiln(words);
    EXPECT_EQ(done.status, 0) << done.err << done.out;
    EXPECT_EQ(done.json().at("spill_bytes"), 0) << done.out;
  }
}

/// The fake driver checks each tensor map as the real one does. It computes nothing.
TEST_F(HopperKernel, RunMakesItsDataAndLaunches) {
  Arguments words = command("run");
  words.erase(std::find(words.begin(), words.end(), "--check"));
  words.push_back("--json");
  const Finished done = kiln(words, {{"KILN_LIBCUDA", places::kFakeCuda}});
  EXPECT_EQ(done.status, 0) << done.err;
  ASSERT_EQ(done.json().at("sizes").size(), 3u) << done.out;
  const auto bench = done.json().at("sizes").at(0).at("bench");
  EXPECT_EQ(bench.at("unit"), "bf16");
  EXPECT_EQ(bench.at("flops"), 2.0 * 4096 * 4096);
  EXPECT_GT(bench.at("peak_tflop_per_s"), 0);
  EXPECT_GE(bench.at("floor_us"), bench.at("stream_us"));
}

}  // namespace
}  // namespace kiln::test

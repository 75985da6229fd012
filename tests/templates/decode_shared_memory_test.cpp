// The shared memory that a block of attn_decode_paged takes of an SM, as its manifest computes it.
#include "support/nightly.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

class DecodeSharedMemory : public KilnCompiler {};

// The choices of WARPS and STAGES that leave the least shared memory: the manifest's
// figure is what a block takes.
TEST_F(DecodeSharedMemory, OfABlockFitsThatOfAnSm) {
  const auto expect_fits = [&](std::vector<std::string> params, const std::string& arch, int most) {
    params.insert(params.begin(), {"compile", "attn_decode_paged", "T=bf16"});
    params.insert(params.end(), {"--arch", arch, "--json"});
    const Finished done = kiln(params);
    ASSERT_EQ(done.status, 0) << done.err;
    const int shared = done.json()["exports"]["SHARED"].get<int>();
    EXPECT_LE(shared, most) << done.out;
    EXPECT_GT(shared, most - 512) << "another choice leaves less now";
  };
  expect_fits({"D=192", "GROUP=3", "WARPS=4", "STAGES=3"}, "sm_80", 163 * 1024);
  expect_fits({"D=64", "GROUP=5", "WARPS=4", "STAGES=6"}, "sm_90a", 227 * 1024);
  if (!nightly()) return;
  expect_fits({"D=128", "GROUP=7", "BLOCKS=2", "WARPS=4", "STAGES=1"}, "sm_80", 164 * 1024 / 2 - 1024);
  expect_fits({"D=128", "GROUP=1"}, "sm_86", 99 * 1024);
  expect_fits({"D=64", "GROUP=3", "BLOCKS=2", "WARPS=4", "STAGES=1"}, "sm_86", 100 * 1024 / 2 - 1024);
  expect_fits({"D=64", "GROUP=11", "BLOCKS=3", "WARPS=4", "STAGES=1"}, "sm_90a", 228 * 1024 / 3 - 1024);
}

}  // namespace
}  // namespace kiln::test

// The kernel of docs/guide/hopper-kernel.md on a GPU of compute capability 9.0: it gives the results of its reference.
#include "docs/hopper_kernel.hpp"
#include "tools/on_gpu.hpp"

namespace kiln::test {
namespace {

class HopperKernelOnGpu : public OnGpu<HopperKernel> {};

TEST_F(HopperKernelOnGpu, IsWhatItsReferenceSays) {
  for (const Arguments& values : {Arguments{"T=bf16", "N=4096", "K=4096", "m=1,100,4096"},
                                  {"T=f16", "N=2000", "K=264", "BN=192", "m=1,127,129,3000", "stride_a=272"},
                                  {"T=bf16", "N=8", "K=8", "BN=64", "m=1,5000"},
                                  {"T=bf16", "N=40", "K=72", "BN=128", "m=20000", "stride_d=48"}}) {
    Arguments words{"run", "hopper_gemm", "--check", "--json"};
    words.insert(words.end(), values.begin(), values.end());
    const Finished done = kiln(words, {{"KILN_LIBCUDA", "libcuda.so.1"}});
    EXPECT_EQ(done.status, 0) << done.out << done.err;
  }
}

}  // namespace
}  // namespace kiln::test

// The cubin reader against the compiler: read_cubin must find the numbers that ptxas -v prints.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/toolchain/compile.hpp"
#include "toolchain/cubin.hpp"

namespace kiln::toolchain {
namespace {

constexpr char kSource[] = R"(
struct __align__(64) Aligned { char bytes[128]; };
__constant__ int table[8];
__device__ int sink[64];
__device__ __noinline__ float inner(const float* p, int i) {
  float t[32];
  for (int j = 0; j < 32; ++j) t[(j * i) & 31] = p[j];
  return t[i & 31];
}
__device__ __noinline__ float outer(const float* p, int i) {
  float t[64];
  for (int j = 0; j < 64; ++j) t[(j * i) & 63] = inner(p + j, j);
  return t[i & 63];
}
extern "C" __global__ void no_arguments() { sink[threadIdx.x] = table[threadIdx.x & 7]; }
extern "C" __global__ void mixed(float* out, int n, const double* in, short s, char c) {
  if (threadIdx.x < n) out[threadIdx.x] = in[threadIdx.x] + s + c;
}
extern "C" __global__ void aligned(int n, Aligned a, float* out) { out[n] = a.bytes[n]; }
extern "C" __global__ void __launch_bounds__(192, 2) calls(float* out) { out[threadIdx.x] = outer(out, threadIdx.x); }
extern "C" __global__ void dynamic_shared(float* out) {
  extern __shared__ float d[];
  d[threadIdx.x] = out[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = d[299 - threadIdx.x];
}
template <class T> __global__ void templated(T* p) { *p = 1; }
template __global__ void templated<int>(int*);
#if __CUDA_ARCH__ >= 900
extern "C" __global__ void __cluster_dims__(2, 1, 1) clustered(float* out) { out[blockIdx.x] = 1; }
#endif
#if __CUDA_ARCH__ >= 900 && __CUDACC_VER_MAJOR__ >= 13
extern "C" __global__ void __block_size__((128, 2, 1)) fixed_block(float* out) { out[blockIdx.x] = 1; }
#endif
#if __CUDACC_VER_MAJOR__ >= 13 || __CUDACC_VER_MINOR__ >= 4
struct Big { char bytes[6000]; };
extern "C" __global__ void big(Big b, float* out, int i) { out[i] = b.bytes[i]; }
#endif
)";

/// The number before `words` in the text, such as 48 in "48 bytes smem" for " bytes smem"; 0 when missing.
unsigned number_before(const std::string& text, const std::string& words) {
  const auto end = text.find(words);
  if (end == std::string::npos) return 0;
  const auto blank = text.rfind(' ', end - 1);
  return static_cast<unsigned>(std::stoul(text.substr(blank + 1, end - blank - 1)));
}

/// The lines of ptxas -v about one entry function.
std::string about(const std::string& log, const std::string& kernel) {
  const auto from = log.find("Compiling entry function '" + kernel + "'");
  if (from == std::string::npos) return "";
  return log.substr(from, log.find("Compiling entry function", from + 1) - from);
}

std::vector<std::uint32_t> sizes(const CubinKernel& kernel) {
  std::vector<std::uint32_t> out;
  for (const CubinArgument& argument : kernel.arguments) out.push_back(argument.size);
  return out;
}

using Three = std::array<std::uint32_t, 3>;
using Sizes = std::vector<std::uint32_t>;

class CubinOfNvrtc : public ::testing::TestWithParam<const char*> {};

TEST_P(CubinOfNvrtc, SaysWhatPtxasSays) {
  const std::string arch = GetParam();
  const int sm = std::atoi(arch.c_str() + 3);
  const Nvrtc* nvrtc = test::installed_nvrtc();
  if (!nvrtc) GTEST_SKIP() << "no NVRTC on this machine";
  if (!std::count(nvrtc->archs.begin(), nvrtc->archs.end(), sm)) GTEST_SKIP() << "this NVRTC has no " << arch;
  const auto [cubin, log] = test::compile(*nvrtc, kSource + test::kSpillsAndShared, arch);
  ASSERT_FALSE(cubin.empty());
  const CubinFacts facts = read_cubin(std::as_bytes(std::span(cubin)));
  EXPECT_EQ(facts.sm, sm);

  for (const CubinKernel& kernel : facts.kernels) {
    const std::string lines = about(log, kernel.name);
    ASSERT_NE(lines, "") << kernel.name << '\n' << log;
    EXPECT_EQ(kernel.registers, number_before(lines, " registers")) << kernel.name;
    EXPECT_EQ(kernel.shared_bytes, number_before(lines, " bytes smem")) << kernel.name;
    const unsigned cumulative = number_before(lines, " bytes cumulative stack size");
    if (cumulative) {
      EXPECT_EQ(kernel.stack_bytes, cumulative) << kernel.name;
    }
    if (!nvrtc->at_least(12, 8) || kernel.name == "calls") continue;  // ptxas lists callees' spills apart
    EXPECT_EQ(kernel.spill_store_bytes, number_before(lines, " bytes spill stores")) << kernel.name;
    EXPECT_EQ(kernel.spill_load_bytes, number_before(lines, " bytes spill loads")) << kernel.name;
  }

  const auto kernel = [&](const char* name) -> const CubinKernel& {
    static const CubinKernel none;
    const CubinKernel* found = facts.kernel(name);
    EXPECT_NE(found, nullptr) << name;
    return found ? *found : none;
  };
  EXPECT_EQ(sizes(kernel("no_arguments")), Sizes{});
  EXPECT_EQ(sizes(kernel("mixed")), (Sizes{8, 4, 8, 2, 1}));
  EXPECT_EQ(sizes(kernel("aligned")), (Sizes{4, 128, 8}));
  EXPECT_EQ(sizes(kernel("_Z9templatedIiEvPT_")), Sizes{8});
  EXPECT_EQ(kernel("mixed").max_threads, 0u);
  EXPECT_EQ(kernel("mixed").required_block, Three{});
  EXPECT_EQ(kernel("mixed").cluster, Three{});
  EXPECT_EQ(kernel("calls").max_threads, 192u);
  EXPECT_GE(kernel("calls").stack_bytes, 32 * 4u + 64 * 4u) << "callees included";
  EXPECT_EQ(kernel("static_shared").shared_bytes, 1200u);
  EXPECT_EQ(kernel("dynamic_shared").shared_bytes, 0u);
  if (nvrtc->at_least(12, 8)) {
    EXPECT_GT(kernel("spills").spill_store_bytes, 0u);
  }
  if (nvrtc->at_least(12, 4)) {
    EXPECT_EQ(sizes(kernel("big")), (Sizes{6000, 8, 4}));
  }
  if (sm >= 90) {
    EXPECT_EQ(kernel("clustered").cluster, (Three{2, 1, 1}));
  }
  if (sm >= 90 && nvrtc->at_least(13, 0)) {
    EXPECT_EQ(kernel("fixed_block").required_block, (Three{128, 2, 1}));
  }
}

INSTANTIATE_TEST_SUITE_P(Archs, CubinOfNvrtc,
                         ::testing::Values("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100a",
                                           "sm_103a", "sm_110a", "sm_120a", "sm_121a"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace kiln::toolchain

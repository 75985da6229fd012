// Compiles with the real NVRTC in this process, for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "toolchain/locate.hpp"
#include "toolchain/nvrtc.hpp"

namespace kiln::test {

/// The NVRTC of KILN_CUDA_HOME or of the usual places; null when none is found.
inline const toolchain::Nvrtc* installed_nvrtc() {
  const char* home = std::getenv("KILN_CUDA_HOME");
  static const toolchain::Toolkit toolkit =
      toolchain::locate_toolkit({.cuda_home = home ? home : "", .use_environment = true});
  return toolkit.has_compiler() ? &toolchain::Nvrtc::load(toolkit.compiler.library, toolkit.compiler.builtins)
                                : nullptr;
}

/// A kernel that spills registers, and a kernel with 1200 bytes of static shared memory.
inline const std::string kSpillsAndShared = R"(
extern "C" __global__ void __launch_bounds__(1024) spills(float* out) {
  float v[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) v[i] = out[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 128; ++i) out[(i * 7 + 3) * threadIdx.x] = v[i] * v[(i * 5 + 3) % 128];
}
extern "C" __global__ void static_shared(float* out) {
  __shared__ float s[300];
  s[threadIdx.x] = out[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = s[299 - threadIdx.x];
}
)";

struct Compiled {
  std::string cubin, log;
};

inline Compiled compile(const toolchain::Nvrtc& nvrtc, const std::string& source, const std::string& arch) {
  toolchain::nvrtcProgram program = nullptr;
  nvrtc.check(nvrtc.CreateProgram(&program, source.c_str(), "test.cu", 0, nullptr, nullptr),
              "nvrtcCreateProgram");
  const std::string gpu = "-arch=" + arch;
  std::vector<const char*> options{gpu.c_str(), "-Xptxas", "-v"};
  if (nvrtc.at_least(12, 9)) options.push_back("--no-cache");
  const int result = nvrtc.CompileProgram(program, static_cast<int>(options.size()), options.data());
  Compiled out;
  size_t size = 0;
  nvrtc.check(nvrtc.GetProgramLogSize(program, &size), "nvrtcGetProgramLogSize");
  out.log.resize(size);
  nvrtc.check(nvrtc.GetProgramLog(program, out.log.data()), "nvrtcGetProgramLog");
  EXPECT_EQ(result, 0) << arch << '\n' << out.log;
  if (result == 0) {
    nvrtc.check(nvrtc.GetCUBINSize(program, &size), "nvrtcGetCUBINSize");
    out.cubin.resize(size);
    nvrtc.check(nvrtc.GetCUBIN(program, out.cubin.data()), "nvrtcGetCUBIN");
  }
  nvrtc.DestroyProgram(&program);
  return out;
}

}  // namespace kiln::test

#include "compile/advice/advice.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <set>

#include "compile/advice/diagnostic.hpp"
#include "support/places.hpp"

namespace kiln::compile {
namespace {

std::vector<std::string> advice(const std::string& log, const std::vector<std::string>& options = {},
                                const std::string& arch = "sm_90a") {
  return advice_for(log, {options, arch, "ns::k<3>", source::HostHeaders::none});
}

std::string joined(const std::vector<std::string>& hints) {
  std::string out;
  for (const std::string& hint : hints) out += hint + '\n';
  return out;
}

constexpr const char* kSaysHostFunction =
    "A function without execution space annotations (__host__/__device__/__global__) is considered a host "
    "function, and host functions are not allowed in JIT mode. Consider using -default-device flag to "
    "process "
    "unannotated functions as __device__ functions in JIT mode\n";
constexpr const char* kSaysHostVariable =
    "A namespace scope variable without memory space annotations (__device__/__constant__/__shared__/"
    "__managed__) is considered a host variable, and host variables are not allowed in JIT mode. Consider "
    "using -default-device flag to process unannotated namespace scope variables as __device__ variables in "
    "JIT mode\n";

// All logs are from NVRTC 13.0.88.

TEST(Diagnostic, ReadsErrorsWithTheirPlaceAndTheWordTheyPointAt) {
  const std::string log =
      "/dev/null/k.cu(2): warning #20094-D: a host variable \"t\" cannot be directly read\n"
      "  __global__ void k(int*o){*o=t;}\n                              ^\n\n"
      "Remark: The warnings can be suppressed with \"-diag-suppress <warning-number>\"\n\n"
      "/dev/null/k.cu(7): error: identifier \"q\" is undefined\n"
      "  void run(int*o){ q<<<1,32>>>(o);}\n                   ^\n\n"
      ".k0/inner/a.h(3): catastrophic error: cannot open source file \"b.h\"\n  #include \"b.h\"\n"
      "                ^\n\n"
      "ptxas application ptx input, line 23; error   : Instruction 'wgmma.fence' not supported\n"
      "ptxas fatal   : Ptx assembly aborted due to errors\n"
      "/dev/null/x.cu(1): Error: Formal parameter space overflowed\n"
      "1 error detected in the compilation of \"/dev/null/k.cu\".\n";
  const auto errors = errors_of(log);
  ASSERT_EQ(errors.size(), 5u);
  EXPECT_EQ(errors[0].location(), "line 7 of k.cu");
  EXPECT_EQ(errors[0].message, "identifier \"q\" is undefined");
  EXPECT_EQ(errors[0].word, "q");
  EXPECT_EQ(errors[1].location(), "line 3 of inner/a.h");
  EXPECT_EQ(errors[1].word, "");
  EXPECT_EQ(errors[2].location(), "");
  EXPECT_EQ(errors[2].message, "Instruction 'wgmma.fence' not supported");
  EXPECT_EQ(errors[4].message, "Formal parameter space overflowed");
}

TEST(Diagnostic, AnEndlessLogGivesAThousand) {
  std::string log;
  for (int i = 0; i < 5000; ++i) log += "k.cu(" + std::to_string(i) + "): error: no\n";
  EXPECT_EQ(errors_of(log).size(), 1000u);
}

TEST(Diagnostic, AnEchoedSourceLineIsNoError) {
  EXPECT_TRUE(errors_of("k.cu(1): warning #1: x\n  error: identifier \"uint32_t\" is undefined\n").empty());
  EXPECT_TRUE(errors_of("").empty());
  EXPECT_TRUE(errors_of("(1): error: x\n): error\nx(): error: y\n").empty());
}

TEST(Advice, NothingIsSaidAboutWhatIsNotKnown) {
  EXPECT_TRUE(advice("/dev/null/k.cu(1): error: expected a \";\"\n").empty());
  EXPECT_TRUE(advice("").empty());
  EXPECT_TRUE(advice("/dev/null/k.cu(1): error: identifier \"rows\" is undefined\n").empty());
}

TEST(Advice, AHostHeaderWithAShimIsGivenByHostHeaders) {
  const auto hints = advice(
      "/dev/null/x.cu(1): catastrophic error: cannot open source file \"cstdio\"\n  #include <cstdio>\n"
      "                   ^\n\n1 catastrophic error detected in the compilation of \"/dev/null/x.cu\".\n");
  ASSERT_EQ(hints.size(), 1u);
  EXPECT_EQ(
      hints[0],
      "'cstdio' (line 1 of x.cu) is a host header, which NVRTC does not have: host_headers = \"shim\" in "
      "[compile] adds kiln's own, as far as device code needs it");
}

TEST(Advice, AHeaderWithoutAShimNeedsADirectoryOrAStandIn) {
  const auto hints = advice(".k0/a.cuh(9): catastrophic error: cannot open source file \"exception.h\"\n");
  ASSERT_EQ(hints.size(), 1u);
  EXPECT_NE(hints[0].find("line 9 of a.cuh"), std::string::npos);
  EXPECT_NE(hints[0].find("include_dirs"), std::string::npos);
  EXPECT_NE(hints[0].find("replace = { \"exception.h\" = \"stub.h\" }"), std::string::npos);
}

TEST(Advice, AStandardHeaderWithoutAShimIsNoDirectoryThatIsMissing) {
  const auto hints = advice("/dev/null/x.cu(1): catastrophic error: cannot open source file \"span\"\n");
  ASSERT_EQ(hints.size(), 1u);
  EXPECT_NE(hints[0].find("<cuda/std/span>"), std::string::npos) << hints[0];
  EXPECT_EQ(hints[0].find("include_dirs"), std::string::npos) << hints[0];
}

TEST(Advice, ALauncherBesideItsKernelsMayBeCompiledAsDeviceCode) {
  const std::string log =
      "/dev/null/x.cu(3): error: A function explicitly marked as a __host__ function is not allowed in JIT "
      "mode\n  __host__ void launch() {}\n                ^\n";
  const auto hints = advice(log);
  ASSERT_EQ(hints.size(), 1u);
  EXPECT_NE(hints[0].find("preinclude = [\"nvcc.h\", \"unmark_host.h\"]"), std::string::npos) << hints[0];
  const std::vector<std::string> there{"--pre-include=nvcc.h", "--pre-include=unmark_host.h"};
  const auto less = advice_for(log, {there, "sm_90a", "k", source::HostHeaders::shim});
  ASSERT_EQ(less.size(), 1u);
  EXPECT_EQ(less[0].find("preinclude"), std::string::npos) << less[0];
}

TEST(Advice, AByteOrderMarkIsNamed) {
  const auto hints = advice(".k0/b.h(1): error: unrecognized token\n  \xef\xbb\xbf#define A 1\n  ^\n");
  ASSERT_EQ(hints.size(), 1u);
  EXPECT_NE(hints[0].find("line 1 of b.h begins with a byte order mark"), std::string::npos) << hints[0];
  EXPECT_TRUE(advice(".k0/b.h(1): error: unrecognized token\n  #define A 1\n  ^\n").empty());
}

TEST(Advice, EveryShimIsKnown) {
  std::set<std::string> there, known;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(places::kSourceDirectory) + "/templates/shim")) {
    const std::string name = entry.path().filename().string();
    const bool stands_in = name != "nvcc.h" && name != "unmark_host.h";  // preinclude names these two
    if (!entry.is_directory() && stands_in) there.insert(name);
  }
  for (const std::string_view name : shimmed_headers()) known.emplace(name);
  EXPECT_EQ(known, there);
}

TEST(Advice, ShimsThatAreThereAreNotAdvised) {
  const std::vector<std::string> none;
  const auto hints = advice_for("/dev/null/x.cu(1): catastrophic error: cannot open source file \"cstdio\"\n",
                                {none, "sm_90a", "k", source::HostHeaders::shim});
  ASSERT_EQ(hints.size(), 1u);
  EXPECT_EQ(hints[0].find("host_headers"), std::string::npos) << hints[0];
}

TEST(Advice, HostCallsSayWhyTheirFunctionIsHostCode) {
  const std::string log = std::string("/dev/null/x.cu(2): error: ") + kSaysHostFunction +
                          "  void f(){ void*p; cudaMalloc(&p,4); }\n       ^\n\n"
                          "/dev/null/x.cu(2): error: identifier \"cudaMalloc\" is undefined\n"
                          "  void f(){ void*p; cudaMalloc(&p,4); }\n                    ^\n";
  const auto hints = advice(log);
  ASSERT_EQ(hints.size(), 1u) << joined(hints);
  EXPECT_NE(hints[0].find("'cudaMalloc' (line 2 of x.cu) is host code"), std::string::npos);
  EXPECT_NE(hints[0].find("preinclude = [\"nvcc.h\", \"unmark_host.h\"]"), std::string::npos)
      << "default_device alone would not help: " << hints[0];
}

TEST(Advice, DeviceFunctionsOfTheRuntimeAreNoHostCode) {
  const auto hints = advice("x.cu(2): error: identifier \"cudaGridDependencySynchronize\" is undefined\n");
  ASSERT_EQ(hints.size(), 1u) << joined(hints);
  EXPECT_NE(hints[0].find("preinclude = [\"cuda_device_runtime_api.h\"]"), std::string::npos) << hints[0];
  EXPECT_EQ(hints[0].find("host code"), std::string::npos) << hints[0];
}

TEST(Advice, AnUnmarkedFunctionIsNamed) {
  const auto hints = advice(std::string(".k1/util.h(14): error: ") + kSaysHostFunction +
                            "  int f(int a){return a+1;}\n      ^\n");
  ASSERT_EQ(hints.size(), 1u);
  EXPECT_TRUE(hints[0].starts_with("'f' (line 14 of util.h) is not marked __device__")) << hints[0];
  EXPECT_NE(hints[0].find("default_device = true"), std::string::npos);
}

TEST(Advice, WhatFollowsFromAnUndeclaredTypeIsNotAdvisedOn) {
  const std::string at = "/dev/null/x.cu(1): error: ", echo = "  __global__ void k(uint32_t*o){ *o=1;}\n";
  const auto hints = advice(at + "attribute \"__global__\" does not apply here\n" + echo + at +
                            kSaysHostVariable + echo + at + "identifier \"uint32_t\" is undefined\n" + echo +
                            "__nv_name_map(2): error: Error in parsing name expression for lowered name "
                            "lookup. Input name expression was: \" k\"\n");
  ASSERT_EQ(hints.size(), 1u) << joined(hints);
  EXPECT_TRUE(hints[0].starts_with("'uint32_t' (line 1 of x.cu) is declared by <cstdint>")) << hints[0];
}

TEST(Advice, ShimsAndTheCutAreAdvisedOnlyWhereTheyAreOff) {
  const std::vector<std::string> options;
  const AdviceSubject cut{options, "sm_90a", "k", source::HostHeaders::shim, true};
  const std::string tuple = "a.cu(1): error: namespace \"std\" has no member \"tuple\"\n";
  EXPECT_NE(joined(advice(tuple)).find("host_headers = \"shim\" and preinclude = [\"tuple\"]"),
            std::string::npos);
  EXPECT_EQ(joined(advice_for(tuple, cut)).find("host_headers"), std::string::npos);
  EXPECT_NE(joined(advice_for(tuple, cut)).find("preinclude = [\"tuple\"]"), std::string::npos);
  const std::string unknown = "a.cu(1): error: namespace \"std\" has no member \"pmr\"\n";
  EXPECT_EQ(joined(advice_for(unknown, cut)).find("host_headers"), std::string::npos);
  const std::string torch =
      "a.cu(1): error: name followed by \"::\" must be a class or namespace name\n  at::Tensor t;\n  ^\n";
  EXPECT_NE(joined(advice(torch)).find("host_code"), std::string::npos);
  EXPECT_EQ(joined(advice_for(torch, cut)), "");
}

TEST(Advice, MinimalIsBlamedOnlyWhereItIsSet) {
  const std::string log = "a.cuh(116): error: identifier \"cudaError_t\" is undefined\n";
  EXPECT_NE(joined(advice(log, {"--minimal"})).find("minimal = true in [compile] leaves out 'cudaError_t'"),
            std::string::npos);
  EXPECT_EQ(joined(advice(log)).find("minimal"), std::string::npos);
  EXPECT_NE(
      joined(advice("a.cu(1): error: identifier \"tex2D\" is undefined\n", {"--minimal"})).find("textures"),
      std::string::npos);
}

TEST(Advice, EachHintOnceAndThreeAtMost) {
  std::string log;
  for (int i = 0; i < 50; ++i) {
    const std::string at = "k.cu(" + std::to_string(i) + "): error: ";
    log += at + "identifier \"uint32_t\" is undefined\n" + at +
           "device code does not support exception handling\n";
    log += at + "identifier \"cudaMalloc\" is undefined\n" + at +
           "128-bit integer type is only supported in Linux with the \"--device-int128\" flag in NVRTC\n";
  }
  const auto hints = advice(log);
  ASSERT_EQ(hints.size(), 3u) << joined(hints);
  EXPECT_NE(hints[0].find("line 0 of k.cu"), std::string::npos) << "the first place";
}

TEST(Advice, ANameExpressionIsBlamedOnlyWhenTheSourceIsSound) {
  const std::string map =
      "__nv_name_map(2): error: cannot determine which instance of function template \"k\" "
      "is intended\n";
  EXPECT_NE(joined(advice(map)).find("'ns::k<3>', which does not fit the template 'k'"), std::string::npos);
  EXPECT_TRUE(advice("k.cu(1): error: expected a \";\"\n" + map).empty());
  EXPECT_NE(joined(advice("__nv_name_map(3): error: identifier \"table\" is undefined\n"
                          "  #pragma nv_mangled_name &ns::table\n                          ^\n"))
                .find("symbol 'ns::table' of a [[global]]"),
            std::string::npos);
}

TEST(Advice, PtxasNamesTheArchThatIsNeeded) {
  const std::string at = "ptxas application ptx input, line 23; error   : ";
  EXPECT_NE(
      joined(advice(at + "Feature 'barrier.cluster.arrive' requires .target sm_90 or higher\n", {}, "sm_80"))
          .find("arch = { min = \"sm_90\" }"),
      std::string::npos);
  const auto wgmma =
      joined(advice(at + "Instruction 'wgmma.fence' not supported on .target 'sm_80'\n", {}, "sm_80"));
  EXPECT_NE(wgmma.find("arch = { only = [\"sm_90a\"] }"), std::string::npos) << wgmma;
  EXPECT_NE(wgmma.find("[arch.sm_80]"), std::string::npos) << wgmma;
  // NVRTC 13.0.88 says "Instruction ..." instead; this text is documented for other releases.
  EXPECT_NE(
      joined(advice(at + "Feature 'wgmma.fence' requires .target sm_90a\n", {}, "sm_80")).find("only = "),
      std::string::npos);
}

TEST(Advice, SharedMemoryIsToldInBytes) {
  const auto hints = advice(
      "ptxas error   : Entry function '_Z1kPf' uses too much shared data (0x13880 bytes, 0xc000 max)\n");
  ASSERT_EQ(hints.size(), 1u);
  EXPECT_NE(hints[0].find("80000 bytes, and 49152 are allowed"), std::string::npos) << hints[0];
}

TEST(Advice, AnExportIsNamed) {
  const auto hints = advice(
      "[export] SIZE(1): error: identifier \"uint32_t\" is undefined\n[export] SIZE(1): error: expected a "
      "\")\"\n");
  ASSERT_EQ(hints.size(), 1u) << joined(hints);
  EXPECT_TRUE(hints[0].starts_with("the export 'SIZE' must be an integer constant expression")) << hints[0];
}

TEST(Advice, ASegmentationFaultOfTheCompilerHasAKnownCause) {
  const std::vector<std::string> none;
  EXPECT_NE(advice_for_crash(SIGSEGV, {none, "sm_90a", "k<int>", source::HostHeaders::none}).find("'k<int>'"),
            std::string::npos);
  EXPECT_EQ(advice_for_crash(SIGABRT, {none, "sm_90a", "k<int>", source::HostHeaders::none}), "");
}

}  // namespace
}  // namespace kiln::compile

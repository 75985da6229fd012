#include "compile/backend/nvrtc/log.hpp"

#include <gtest/gtest.h>

namespace kiln::compile {
namespace {

// Logs that NVRTC 13.0.88 wrote.
constexpr const char* kPtxasLog =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function '_Z1kILi4EEvPi' for 'sm_90a'\n"
    "ptxas info    : Function properties for _Z1kILi4EEvPi\n"
    "ptxas         .     0 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n"
    "ptxas info    : Used 4 registers, used 1 barriers\n"
    "ptxas info    : Function properties for _Z1kILi5EEvPi\n"
    "ptxas         .     0 bytes stack frame, 99 bytes spill stores, 99 bytes spill loads\n";

TEST(NvrtcLog, TakesPhaseTimesOutOfTheLog) {
  WorkerResponse r;
  r.log =
      "a warning\n\nFile name, phase name, metric, unit\n/nonexistent/k.cu, CUDA C++ Frontend, 6, ms\n"
      "/nonexistent/k.cu, NVVM Optimizer, 5.5, ms\n/nonexistent/k.cu, PTX Translation, 7, ms\n";
  take_phase_times(r);
  EXPECT_EQ(r.frontend_ms, 6);
  EXPECT_EQ(r.nvvm_ms, 5.5);
  EXPECT_EQ(r.ptxas_ms, 7);
  EXPECT_EQ(r.log, "a warning");
}

TEST(NvrtcLog, TheZeroBeforeThePhaseTimesIsNotPartOfTheLog) {
  using namespace std::string_literals;
  WorkerResponse r;
  r.log = "\0File name, phase name, metric, unit\nk.cu, NVVM Optimizer, 5.5, ms\n"s;
  take_phase_times(r);
  EXPECT_EQ(r.nvvm_ms, 5.5);
  EXPECT_EQ(r.log, "");
}

TEST(NvrtcLog, ReadsTheSpillsOfTheKernelThatWasAskedFor) {
  const PtxasReport report = read_ptxas_report(kPtxasLog, "_Z1kILi4EEvPi");
  EXPECT_EQ(report.spill_store_bytes, 12u);
  EXPECT_EQ(report.spill_load_bytes, 16u);
  EXPECT_TRUE(report.performance_warnings.empty());
}

TEST(NvrtcLog, KeepsPerformanceWarningsOfASuccessfulCompile) {
  const std::string log =
      std::string(kPtxasLog) + "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored\n";
  EXPECT_EQ(read_ptxas_report(log, "_Z1kILi4EEvPi").performance_warnings.size(), 1u);
  EXPECT_NE(diagnostics_of(log).find("C7508"), std::string::npos);
}

TEST(NvrtcLog, DiagnosticsLeaveOutWhatPtxasSaysAlways) {
  EXPECT_EQ(diagnostics_of(kPtxasLog), "");
  EXPECT_EQ(diagnostics_of(std::string("x.cu(3): error: no\n") + kPtxasLog), "x.cu(3): error: no");
}

TEST(NvrtcLog, TellsLackOfMemoryFromAFaultOfTheSource) {
  EXPECT_TRUE(says_out_of_memory("catastrophic error: out of memory", "NVRTC_ERROR_COMPILATION"));
  EXPECT_TRUE(says_out_of_memory("", "NVRTC_ERROR_OUT_OF_MEMORY"));
  EXPECT_FALSE(says_out_of_memory("k.cu(1): error: #error directive: we ran out of memory here",
                                  "NVRTC_ERROR_COMPILATION"));
  EXPECT_FALSE(says_out_of_memory("error: identifier \"x\" is undefined", "NVRTC_ERROR_COMPILATION"));
}

TEST(NvrtcLog, KeepsBeginningAndEndOfAnEndlessLog) {
  std::string small = "x.cu(1): warning: y\n" + std::string(kPtxasLog), huge = "first\n";
  const std::string same = small;
  shorten(small);
  EXPECT_EQ(small, same);
  huge += std::string(std::size_t{64} << 20, 'x') + "\nlast";
  shorten(huge);
  EXPECT_LT(huge.size(), std::size_t{3} << 20);
  EXPECT_TRUE(huge.starts_with("first\n"));
  EXPECT_TRUE(huge.ends_with("\nlast"));
  EXPECT_NE(huge.find("[cut: 6"), std::string::npos);
}

TEST(NvrtcLog, NamesTheHeadersOfATrace) {
  const auto headers = traced_headers(
      R"({"traceEvents":[{"args":{"detail":"__nv_nvrtc_builtin_header.h"},"dur":7,"name":"Processing Header File","ph":"X"},)"
      R"x({"args":{"detail":"f()"},"dur":1,"name":"Scanning Function Body"},{"args":{"detail":".k0/a.h"},"dur":9,"name":"Processing Header File"}]})x");
  EXPECT_EQ(headers, std::vector<std::string>{".k0/a.h"});
}

TEST(NvrtcLog, ExportsAreNoHeadersOfATrace) {
  EXPECT_EQ(
      traced_headers(R"({"traceEvents":[{"args":{"detail":"[export]"},"name":"Processing Header File"},)"
                     R"({"args":{"detail":"[export] SIZE"},"name":"Processing Header File"},)"
                     R"({"args":{"detail":".k0/[export] SIZE"},"name":"Processing Header File"}]})"),
      std::vector<std::string>{".k0/[export] SIZE"});
}

TEST(NvrtcLog, NamesTheHeadersOfATraceForSm100AndLater) {
  const auto headers = traced_headers(
      R"({"traceEvents":[{},{"ts":1,"name":"Processing Header File","args":{"detail":"__nv_nvrtc_builtin_header.h"}},)"
      R"x({"ts":2,"name":"Scanning Function Body","args":{"detail":"f()"}},{"ts":3,"name":"Processing Header File","args":{"detail":".k0/a.h"}}]})x");
  EXPECT_EQ(headers, std::vector<std::string>{".k0/a.h"});
}

TEST(NvrtcLog, TakesTheLineAboutAPrecompiledHeaderOutAndNothingElse) {
  const std::string mine = "\"/dev/null/k.cu\": using precompiled header file \"/proc/1/fd/4\"\n",
                    rest = "a warning\n";
  HeaderOutcome outcome;
  std::string log = mine + rest;
  take_header_message(outcome, log, "/dev/null/k.cu");
  EXPECT_EQ(log, mine + rest) << "none was asked for";
  outcome.file = "/proc/1/fd/4";
  take_header_message(outcome, log, "/dev/null/k.cu");
  EXPECT_EQ(log, rest);
  EXPECT_EQ(outcome.end, HeaderOutcome::End::used);
  outcome = {HeaderOutcome::End::none, "/proc/1/fd/5", {}};
  log = mine;
  take_header_message(outcome, log, "/dev/null/k.cu");
  EXPECT_EQ(outcome.end, HeaderOutcome::End::none) << "another file";
}

}  // namespace
}  // namespace kiln::compile

// The table of `kiln run`, from results that need no GPU.
#include "tools/kiln/run/report.hpp"

#include <gtest/gtest.h>

namespace kiln::cli {
namespace {

CheckedArgument floats(double error) {
  CheckedArgument out{"out", "bf16"};
  out.relative_rms = error, out.tolerance = 4e-3, out.elements = 4096, out.canaries = true;
  out.differing = 4000;
  out.ok = error <= out.tolerance;
  return out;
}
CheckedArgument ids(std::uint64_t wrong) {
  CheckedArgument out{"ids", "i32"};
  out.elements = 512, out.differing = wrong, out.canaries = true, out.ok = wrong == 0;
  if (wrong) out.relative_rms = 0.25, out.max_abs = 7;
  return out;
}
SizeResult size(const char* rows, std::vector<CheckedArgument> check) {
  return {{{"rows", rows}, {"stride_x", "8"}}, std::move(check), std::nullopt};
}
std::string printed(const std::vector<SizeResult>& results, const std::vector<std::string>& given = {}) {
  ::testing::internal::CaptureStdout();
  print_sizes(results, given);
  std::fflush(stdout);
  return ::testing::internal::GetCapturedStdout();
}
void expect_has(const std::string& out, const std::string& text) {
  EXPECT_NE(out.find(text), std::string::npos) << text << "\n in:\n" << out;
}

TEST(RunReport, WrongIntegersAreCounted) {
  const std::string out = printed({size("1", {floats(1e-3), ids(0)}), size("64", {floats(1e-3), ids(12)})});
  expect_has(out,
             "rows  check  out error  ids error\n"
             "   1  ok       1.0e-03       none\n"
             "  64  WRONG    1.0e-03  12 differ\n");
  expect_has(out, "WRONG  ids at rows=64: 12 of 512 elements differ, by up to 7\n");
  expect_has(out, "allowed: out (bf16) 4.0e-03, ids (i32) none.");
  EXPECT_EQ(out.find("WRONG  out"), std::string::npos) << out;
}

TEST(RunReport, OnlyIntegersAreCounted) {
  CheckedArgument scales = floats(0.5);
  scales.name = "scales", scales.dtype = "ue8m0";
  expect_has(printed({size("1", {scales})}), "WRONG  scales at rows=1: relative RMS 5.00e-01");
}

TEST(RunReport, AWrongResultSaysInWhichWays) {
  CheckedArgument far = floats(0.5);
  far.max_abs = 3, far.mismatched_nonfinite = 2, far.canaries = false;
  expect_has(
      printed({size("1", {far})}),
      "WRONG  out at rows=1: relative RMS 5.00e-01 where 4.0e-03 is allowed, largest error 3; 2 NaN or Inf "
      "on one side only; the kernel wrote outside of a buffer\n");
  CheckedArgument unwritten = ids(3);
  unwritten.mismatched_nonfinite = 1;
  expect_has(printed({size("1", {unwritten})}),
             "3 of 512 elements differ, by up to 7; 1 not written by the reference\n");
  CheckedArgument none = floats(0);
  none.ok = false;
  expect_has(printed({size("1", {none})}), "not all of 4096 elements were compared\n");
}

TEST(RunReport, ColumnsAreWhatDiffersOrWasGiven) {
  const std::vector<SizeResult> one{size("1", {})};
  expect_has(printed(one), "  with stride_x=8\n\nrows  launched\n   1  yes\n");
  expect_has(printed(one, {"stride_x"}), "  with rows=1\n\nstride_x  launched\n");
  std::vector<SizeResult> two{size("1", {}), size("1", {})};
  two[1].values[1].value = "16";
  expect_has(printed(two), "  with rows=1\n\nstride_x  launched\n       8  yes\n      16  yes\n");
}

}  // namespace
}  // namespace kiln::cli

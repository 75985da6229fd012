#include "compile/key/limits.hpp"

#include <gtest/gtest.h>

namespace kiln::compile {
namespace {

Facts facts() {
  Facts out;
  out.unit = "scale", out.arch = "sm_90a";
  out.parameters = {{"N", "3"}};
  out.spill_store_bytes = 12, out.spill_load_bytes = 16;
  out.performance_warnings = {"(C7508) a", "(C7510) b"};
  out.compile_ms = 61300, out.peak_memory = 1024;
  return out;
}

TEST(Limits, NothingIsBrokenWithoutLimits) {
  EXPECT_TRUE(broken_limits({}, facts(), Strictness::declared).empty());
}

TEST(Limits, EachIsMeasuredAndSaidInItsUnit) {
  source::Limits limits;
  limits.max_spill_bytes = 27, limits.performance_warnings = 1, limits.compile_seconds = 61;
  limits.compile_memory = 1023;
  const auto broken = broken_limits(limits, facts(), Strictness::declared);
  ASSERT_EQ(broken.size(), 4u);
  EXPECT_EQ(broken[0].name, "max_spill_bytes");
  EXPECT_EQ(broken[0].measured, 28);
  EXPECT_EQ(broken[0].allowed, 27);
  EXPECT_EQ(broken[1].sentence, "2 performance warnings of ptxas, and performance_warnings allows 1");
  EXPECT_EQ(broken[2].sentence, "61.3 seconds to compile, and compile_seconds allows 61");
  EXPECT_EQ(broken[3].sentence, "1024 bytes of memory to compile, and compile_memory allows 1023");
  EXPECT_EQ(
      limits_sentence(facts(), {broken[0], broken[2]}),
      "scale N=3 for sm_90a breaks its manifest's limits: 28 bytes of spills, and max_spill_bytes allows "
      "27; 61.3 seconds to compile, and compile_seconds allows 61");
}

TEST(Limits, WhatIsAllowedMayBeReached) {
  source::Limits limits;
  limits.max_spill_bytes = 28, limits.performance_warnings = 2, limits.compile_seconds = 62;
  limits.compile_memory = 1024;
  EXPECT_TRUE(broken_limits(limits, facts(), Strictness::strict).empty());
}

TEST(Limits, StrictAllowsNoPerformanceWarningUnlessTheManifestDoes) {
  source::Limits limits;
  const auto broken = broken_limits(limits, facts(), Strictness::strict);
  ASSERT_EQ(broken.size(), 1u);
  EXPECT_EQ(broken[0].name, "performance_warnings");
  EXPECT_EQ(broken[0].allowed, 0);
  limits.performance_warnings = 2;
  EXPECT_TRUE(broken_limits(limits, facts(), Strictness::strict).empty());
}

TEST(Limits, SpillsAreThoseOfTheWorstEntryPoint) {
  source::Limits limits;
  limits.max_spill_bytes = 28;
  Facts several = facts();
  several.entries.resize(2);
  several.entries[1].spill_load_bytes = 40;
  EXPECT_EQ(broken_limits(limits, several, Strictness::declared).at(0).measured, 40);
}

TEST(Limits, WarningsOfEveryEntryPointCountOnce) {
  source::Limits limits;
  limits.performance_warnings = 2;
  Facts several = facts();
  several.entries.resize(2);
  several.entries[0].performance_warnings = {"(C7508) a"};  // a warning that names no function
  EXPECT_TRUE(broken_limits(limits, several, Strictness::declared).empty());
  several.entries[1].performance_warnings = {"(C7511) in the function 'other'"};
  EXPECT_EQ(broken_limits(limits, several, Strictness::declared).at(0).measured, 3);
  several.performance_warnings.clear(), several.entries[0].performance_warnings.clear();
  EXPECT_EQ(broken_limits({}, several, Strictness::strict).size(), 1u);
}

TEST(Limits, MemoryThatIsNotKnownBreaksNothing) {
  source::Limits limits;
  limits.compile_memory = 0;
  Facts of_bundle = facts();
  of_bundle.peak_memory = 0;
  EXPECT_TRUE(broken_limits(limits, of_bundle, Strictness::declared).empty());
}

}  // namespace
}  // namespace kiln::compile

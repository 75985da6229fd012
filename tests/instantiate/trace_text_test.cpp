// A record is a plan file whose torn rows are ignored.
#include "instantiate/trace_text.hpp"

#include <gtest/gtest.h>

#include "instantiate/plan.hpp"

namespace kiln::source {
namespace {

const Specialization kFirst{"rms_norm", {{"T", "bf16"}, {"H", "4096"}}};
const Specialization kSecond{"softmax", {{"NAME", "a\"b\\c\nd"}}};

std::string record(const std::string& rows) {
  return std::string(kTraceHeader) + std::string(kTracePreamble) + rows;
}
std::string two_rows() {
  return trace_row(kFirst, base::Arch::parse("90")) + trace_row(kSecond, base::Arch::parse("80"));
}

TEST(Record, IsAPlanFile) {
  PlanNotes notes;
  const auto plan = parse_plan(record(two_rows()), "r", &notes);
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].template_name, "rms_norm");
  EXPECT_EQ(plan[0].values, kFirst.parameters);
  EXPECT_EQ(plan[0].arch, "sm_90a");
  EXPECT_EQ(plan[1].values, kSecond.parameters);
  EXPECT_EQ(plan[1].arch, "sm_80");
  EXPECT_TRUE(notes.ignored.empty());
}

TEST(Record, CutAnywhereItKeepsTheRowsThatWereFinished) {
  const std::string whole = record(two_rows());
  const std::size_t first = whole.find("# end\n") + 6;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    PlanNotes notes;
    const auto plan = parse_plan(whole.substr(0, size), "r", &notes);
    EXPECT_EQ(plan.size(), size < first ? 0u : 1u) << size;
    EXPECT_LE(notes.ignored.size(), 1u) << size;
  }
}

TEST(Record, ZerosWhereThePowerWentDoNotCount) {
  const std::string whole = record(two_rows());
  for (std::size_t from = 0; from < whole.size(); from += 3) {
    std::string torn = whole;
    std::fill(torn.begin() + static_cast<std::ptrdiff_t>(from), torn.end(), '\0');
    const auto plan = parse_plan(torn + '\n' + two_rows(), "r");
    EXPECT_EQ(plan.size(), 2u) << from;  // the rows that were appended after the damage
  }
  std::string torn = whole;  // zeros at the start damage the first row only
  const std::size_t at = whole.find("rms_norm");
  std::fill(torn.begin(), torn.begin() + static_cast<std::ptrdiff_t>(at), '\0');
  EXPECT_EQ(parse_plan(torn, "r").size(), 1u);
}

TEST(Record, ATornRowIsNamedOnceWithItsLine) {
  const std::string row = trace_row(kFirst, base::Arch::parse("90"));
  PlanNotes notes;
  const auto plan = parse_plan(
      std::string(kTraceHeader) + "[[prewarm]]\ntemplate = \"rms_no\n" + row + "# a comment\n", "r", &notes);
  EXPECT_EQ(plan.size(), 1u);
  ASSERT_EQ(notes.ignored.size(), 1u);
  EXPECT_EQ(notes.ignored[0].rfind("r:2: ", 0), 0u) << notes.ignored[0];
  EXPECT_EQ(plan[0].row->where("H"), "r:8: [[prewarm]] H");  // line numbers count from the file's start
}

TEST(Record, SaysWhatACallHadLeftOpen) {
  Resolved resolved;
  resolved.specialization = kFirst, resolved.arch = base::Arch::parse("90");
  EXPECT_EQ(trace_row(resolved), trace_row(kFirst, resolved.arch));
  resolved.open = {kFirst.parameters.back().name};
  const auto decided = parse_plan(record(trace_row(resolved)), "r");
  ASSERT_EQ(decided.size(), 1u);
  EXPECT_EQ(decided[0].tuned, resolved.open);
  EXPECT_EQ(decided[0].values.size(), kFirst.parameters.size());
  EXPECT_EQ(parse_plan(record(trace_row(resolved) + trace_row(kFirst, resolved.arch)), "r").size(), 2u)
      << "another call";
  resolved.undecided = true;
  const auto undecided = parse_plan(record(trace_row(resolved)), "r");
  ASSERT_EQ(undecided.size(), 1u);
  EXPECT_TRUE(undecided[0].tuned.empty());
  EXPECT_EQ(undecided[0].values.size(), kFirst.parameters.size() - 1);
}

TEST(Record, WithoutItsFirstLineItIsAnOrdinaryPlan) {
  EXPECT_FALSE(is_trace("[[prewarm]]\n"));
  EXPECT_EQ(parse_plan("[[prewarm]]\ntemplate = \"a\"\n", "p").size(), 1u);
}

TEST(Record, TellsWhereTheLastFinishedRowEnds) {
  const std::string whole = record(two_rows());
  std::size_t rows = 0;
  EXPECT_EQ(each_finished_row(whole + "[[prewarm]]\ntemp", [&](std::string_view) { ++rows; }), whole.size());
  EXPECT_EQ(rows, 2u);
}

}  // namespace
}  // namespace kiln::source

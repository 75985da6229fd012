#include "expression/expression.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/expect_error.hpp"

namespace kiln::source {
namespace {

constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min(),
                       kMax = std::numeric_limits<std::int64_t>::max();

const Symbols& symbols() {
  static const Symbols out = [] {
    Symbols s;
    s.slots = {{"H", 0}, {"VEC", 1},  {"T", 2},    {"ACT", 3},
               {"x", 4}, {"rows", 5}, {"arch", 6}, {"dev.sms", 7}};
    s.constants = {{"f32", 0}, {"bf16", 2}, {"ACT.silu", 0}, {"ACT.gelu", 1}, {"true", 1}, {"false", 0}};
    s.strides = {{"x", {"rows * 2", "1"}},
                 {"loop", {"stride(loop, 0)"}},
                 {"even", {"stride(odd, 0)"}},
                 {"odd", {"stride(even, 0)"}}};
    s.dtypes = {"T", "f32", "bf16"};
    s.pointers = {"x"};
    s.unavailable = {{"eps", "it is f32"}};
    return s;
  }();
  return out;
}

Expression compile(std::string_view text) {
  return Expression::compile(text, symbols(), "a.toml:7: [launch] grid");
}
std::int64_t value(std::string_view text, std::int64_t x = 0) {
  const std::int64_t slots[] = {4096, 8, 2, 1, x, 3, 90, 132};
  return compile(text).evaluate(slots);
}
std::string compile_error(const std::string& text, std::initializer_list<std::string> pieces) {
  return expect_error(Errc::manifest, pieces, [&] { compile(text); });
}
void evaluate_error(const std::string& text, const std::string& piece) {
  expect_error(Errc::requirement, {piece, "'" + text + "'"}, [&] { value(text); });
}

struct Row {
  const char* text;
  std::int64_t expected;
};

TEST(Expression, FollowsThePrecedenceOfC) {
  const Row rows[] = {
      {"1 + 2 * 3", 7},
      {"(1 + 2) * 3", 9},
      {"10 - 4 - 3", 3},
      {"100 / 10 / 5", 2},
      {"7 % 4 * 2", 6},
      {"1 << 2 + 1", 8},
      {"16 >> 1 << 1", 16},
      {"1 < 2 == 1", 1},
      {"3 & 1 == 1", 1},
      {"4 | 2 ^ 2 & 3", 4},
      {"1 | 0 && 0", 0},
      {"1 || 0 && 0", 1},
      {"0 ? 1 : 2", 2},
      {"1 ? 2 : 3 ? 4 : 5", 2},
      {"0 ? 1 : 0 ? 4 : 5", 5},
      {"1 ? 0 ? 7 : 8 : 9", 8},
      {"-2 * -3", 6},
      {"- -3", 3},
      {"!0 + !5", 1},
      {"~0", -1},
      {"~5 & 0xff", 250},
      {"+4", 4},
      {"2 - -2", 4},
      {"1 != 2", 1},
      {"5 >= 5", 1},
      {"5 <= 4", 0},
      {"-7 / 2", -3},
      {"-7 % 2", -1},
      {"-8 >> 1", -4},
      {"-1 << 3", -8},
      {"5 && 3", 1},
      {"0 || 9", 1},
      {" \t1\n+\r1 ", 2},
      {"0x10", 16},
      {"1 > 2 ? 10 : 20 + 1", 21},
  };
  for (const Row& row : rows) EXPECT_EQ(value(row.text), row.expected) << row.text;
}

TEST(Expression, HasTheFunctionsOfTheGrammar) {
  const Row rows[] = {
      {"min(3, 1, 2)", 1},
      {"max(3, 1, 2)", 3},
      {"min(1, 2)", 1},
      {"clamp(5, 0, 3)", 3},
      {"clamp(-5, 0, 3)", 0},
      {"clamp(2, 0, 3)", 2},
      {"ceil_div(7, 2)", 4},
      {"ceil_div(8, 2)", 4},
      {"ceil_div(-7, 2)", -3},
      {"round_up(7, 4)", 8},
      {"round_up(8, 4)", 8},
      {"gcd(12, 18)", 6},
      {"gcd(0, 5)", 5},
      {"gcd(-4, 6)", 2},
      {"sizeof(T)", 2},
      {"sizeof(f32)", 4},
      {"next_pow2(5)", 8},
      {"next_pow2(8)", 8},
      {"next_pow2(0)", 1},
      {"log2(8)", 3},
      {"log2(9)", 3},
      {"log2(1)", 0},
      {"gcd(H, 16 / sizeof(T))", 8},
      {"max(1, min(2, 3))", 2},
  };
  for (const Row& row : rows) EXPECT_EQ(value(row.text), row.expected) << row.text;
}

TEST(Expression, ReadsParametersEnumConstantsDtypesAndTheDevice) {
  EXPECT_EQ(value("T == bf16 && ACT == ACT.gelu"), 1);
  EXPECT_EQ(value("arch >= 90 ? dev.sms * 2 : 0"), 264);
  EXPECT_EQ(value("true + true + false"), 2);
}

TEST(Expression, AlignIsTheLargestPowerOfTwoThatDividesUpTo4096) {
  const std::pair<std::int64_t, std::int64_t> rows[] = {{0, 4096},    {1, 1},          {2, 2},       {48, 16},
                                                        {4096, 4096}, {1 << 20, 4096}, {kMin, 4096}, {-8, 8}};
  for (const auto& [pointer, expected] : rows) EXPECT_EQ(value("align(x)", pointer), expected) << pointer;
}

TEST(Expression, StrideExpandsToTheDeclaredExpression) {
  EXPECT_EQ(value("stride(x, 0) + 1"), 7);
  EXPECT_EQ(value("2 * stride(x, 0)"), 12);  // a value, not its text: 2 * (rows * 2)
  EXPECT_EQ(value("stride(x, 1)"), 1);
  EXPECT_EQ(compile("stride(x, 0)").reads(), std::vector<int>{5});
  EXPECT_TRUE(compile("stride(x, 1)").reads().empty());
}

TEST(Expression, ShortCircuitsSoThatGuardsWork) {
  EXPECT_EQ(value("0 && 1 / 0"), 0);
  EXPECT_EQ(value("1 || 1 / 0"), 1);
  EXPECT_EQ(value("1 ? 5 : 1 / 0"), 5);
  EXPECT_EQ(value("0 ? 1 / 0 : 6"), 6);
  EXPECT_EQ(value("(0 && 1 / 0) + (1 || 1 / 0) * 2"), 2);
}

TEST(Expression, TellsWhichSlotsItReads) {
  EXPECT_EQ(compile("VEC + H + VEC + (0 ? rows : 1)").reads(), (std::vector<int>{0, 1, 5}));
  EXPECT_EQ(compile("align(x)").reads(), std::vector<int>{4});
  EXPECT_TRUE(compile("1 + bf16").reads().empty());
}

TEST(Expression, RefusesArithmeticThatDoesNotFit) {
  const std::string max = std::to_string(kMax);
  const std::string rows[] = {max + " + 1",
                              "-" + max + " - 2",
                              max + " * 2",
                              "-(-" + max + " - 1)",
                              "(-" + max + " - 1) / -1",
                              "(-" + max + " - 1) % -1",
                              "1 << 63",
                              "3 << 62",
                              "round_up(" + max + ", 2)",
                              "next_pow2(" + max + ")",
                              "gcd(-" + max + " - 1, 2)",
                              "ceil_div(-" + max + " - 1, -1)"};
  for (const std::string& text : rows) evaluate_error(text, "overflow");
  for (const char* text : {"1 / 0", "1 % 0", "ceil_div(1, 0)", "round_up(1, 0)"})
    evaluate_error(text, "division by zero");
  for (const char* text : {"1 << 64", "1 << -1", "1 >> 64", "1 >> -1"})
    evaluate_error(text, "shift outside 0..63");
  for (const char* text : {"log2(0)", "log2(-1)"}) evaluate_error(text, "log2");
  evaluate_error("next_pow2(-1)", "next_pow2");
  EXPECT_EQ(value(max), kMax);
  EXPECT_EQ(value("-" + max + " - 1"), kMin);
  EXPECT_EQ(value("(-1 << 63) >> 63"), -1);
  EXPECT_EQ(value("next_pow2(1 << 62)"), std::int64_t{1} << 62);
}

TEST(Expression, RefusesADtypeSlotThatHoldsNone) {
  const std::int64_t slots[] = {1, 1, 99, 0, 0, 0, 0, 0};
  expect_error(Errc::requirement, {"sizeof"}, [&] { compile("sizeof(T)").evaluate(slots); });
}

TEST(Expression, NamesPlaceTextColumnAndWhatWasExpected) {
  const std::string place = "a.toml:7: [launch] grid";
  compile_error("gcd(H, 16", {place, "'gcd(H, 16'", "column 10", "expected ')'"});
  compile_error("", {place, "column 1", "expected a number, a name or '('"});
  compile_error("1 +", {"column 4", "expected a number, a name or '('"});
  compile_error("1 2", {"column 3", "expected an operator or the end"});
  compile_error("1 = 2", {"column 3", "expected an operator or the end"});
  compile_error("1 ? 2", {"column 6", "expected ':'"});
  compile_error("(1", {"column 3", "expected ')'"});
  compile_error("1)", {"column 2", "expected an operator or the end"});
  compile_error("010", {"column 1", "decimal"});
  compile_error("0x", {"column 1", "decimal"});
  compile_error("12abc", {"column 1", "decimal"});
  compile_error("1.5", {"column 1", "not a fraction"});
  compile_error("9223372036854775808", {"does not fit in 64 bits"});
  compile_error("min(1)", {"min takes two or more values, not 1"});
  compile_error("min()", {"min takes two or more values, not 0"});
  compile_error("clamp(1, 2)", {"clamp takes 3 value(s), not 2"});
  compile_error("log2(1, 2)", {"log2 takes 1 value(s), not 2"});
  compile_error("1\n@", {"'1\\n@'", "column 3"});
}

TEST(Expression, ListsWhatIsKnownForAnUnknownName) {
  compile_error("VEX + 1", {"column 1", "unknown name 'VEX'", "did you mean 'VEC'?", "known:", "rows",
                            "dev.sms", "ACT.silu", "the dtypes"});
  compile_error("ACT.silo", {"did you mean 'ACT.silu'?"});
  compile_error("bf17", {"did you mean 'bf16'?"});
  compile_error("ciel_div(1, 2)", {"unknown function 'ciel_div'", "did you mean 'ceil_div'?", "sizeof"});
  compile_error("eps > 0", {"'eps' cannot be used here: it is f32"});
  compile_error("align(eps)", {"'eps' cannot be used here"});
}

TEST(Expression, ChecksTheNamesThatFunctionsTake) {
  compile_error("sizeof(H)", {"sizeof takes a dtype or a dtype parameter, not 'H'", "column 8"});
  compile_error("sizeof(3)", {"sizeof takes a dtype or a dtype parameter"});
  compile_error("sizeof(Q)", {"unknown name 'Q'"});
  compile_error("align(rows)", {"align takes a pointer argument, not 'rows'"});
  compile_error("stride(rows, 0)", {"stride takes an argument with a declared shape, not 'rows'"});
  compile_error("stride(x)", {"expected ','"});
  compile_error("stride(x, rows)", {"expected a literal dimension"});
  compile_error("stride(x, 2)", {"'x' has 2 dimension(s), numbered from 0"});
  compile_error("stride(loop, 0)", {"stride(loop, 0) needs itself"});
  compile_error("stride(even, 0)", {"stride(even, 0) needs itself"});
}

TEST(Expression, RefusesDeepNestingWithoutOverflowingTheStack) {
  constexpr std::size_t kMany = 100'000;
  compile_error(std::string(kMany, '(') + "1" + std::string(kMany, ')'), {"nested too deeply"});
  compile_error(std::string(kMany, '-') + "1", {"nested too deeply"});
  compile_error(std::string(kMany, '!') + "1", {"nested too deeply"});
  std::string ternary, right, functions;
  for (std::size_t i = 0; i < kMany; ++i) ternary += "1 ? 1 : ", right += "1 + (", functions += "min(1, ";
  compile_error(ternary + "1", {"nested too deeply"});
  compile_error(right + "1" + std::string(kMany, ')'), {"nested too deeply"});
  compile_error(functions + "1" + std::string(kMany, ')'), {"nested too deeply"});
}

TEST(Expression, RefusesTextThatGrowsTooLong) {
  std::string sum = "1";
  for (int i = 0; i < 100'000; ++i) sum += "+1";
  compile_error(sum, {"too long"});
  Symbols s = symbols();  // each stride reads the next one twice: 2^40 instructions
  for (int i = 0; i < 40; ++i) {
    const std::string next = "stride(a" + std::to_string(i + 1) + ", 0)";
    s.strides["a" + std::to_string(i)] = {next + " + " + next};
  }
  s.strides["a40"] = {"1"};
  expect_error(Errc::manifest, {"too"}, [&] { Expression::compile("stride(a0, 0)", s, "here"); });
}

TEST(Expression, ManyOperandsOfOneOperatorNeedLittleStack) {
  std::string sum = "1";
  for (int i = 0; i < 1000; ++i) sum += " + 1";
  EXPECT_EQ(value(sum), 1001);
}

TEST(Expression, ConstantsHaveTheirText) {
  const Expression e = Expression::constant(-5);
  EXPECT_EQ(e.evaluate({}), -5);
  EXPECT_EQ(e.text(), "-5");
  EXPECT_FALSE(e.empty());
  EXPECT_TRUE(Expression().empty());
}

TEST(Expression, MissingSlotsAreADefectNotARead) {
  expect_error(Errc::internal, {"reads slot 5 of 1"}, [] {
    const std::int64_t one[] = {1};
    compile("rows").evaluate(one);
  });
  expect_error(Errc::internal, {"empty"}, [] { Expression().evaluate({}); });
}

TEST(Expression, ReservedNamesAreThoseOfTheGrammar) {
  for (const char* name : {"bf16", "arch", "dev", "occupancy", "min", "ceil_div", "sizeof", "align", "stride",
                           "true", "template", "tuned"}) {
    EXPECT_TRUE(is_reserved_name(name)) << name;
  }
  for (const char* name : {"H", "rows", "T", "BF16", "minimum"}) EXPECT_FALSE(is_reserved_name(name)) << name;
}

TEST(Expression, KnowsAFloatingPointNumberAsTheNextIntegerAwayFromZero) {
  EXPECT_EQ(away_from_zero(0.0), 0);
  EXPECT_EQ(away_from_zero(-0.0), 0);
  EXPECT_EQ(away_from_zero(1e-300), 1);
  EXPECT_EQ(away_from_zero(-1e-300), -1);
  EXPECT_EQ(away_from_zero(30.0), 30);
  EXPECT_EQ(away_from_zero(-2.5), -3);
  EXPECT_EQ(away_from_zero(1e300), kMax);
  EXPECT_EQ(away_from_zero(-INFINITY), INT64_MIN);
  EXPECT_EQ(away_from_zero(NAN), INT64_MIN) << "neither above 0 nor 0";
}

TEST(Expression, FoldsWhatIsKnownAndKeepsTheRest) {
  const std::int64_t slots[] = {4096, 8, 2, 1, 0, 3, 90, 132};
  const std::vector<bool> known = {true, true, true, true, false, false, true, true};  // not x and rows
  const auto folded = [&](std::string_view text) { return compile(text).folded(slots, known); };
  EXPECT_EQ(folded("H / VEC * sizeof(T)").constant_value(), 1024);
  EXPECT_EQ(folded("H == 4096 || rows > 0").constant_value(), 1) << "decided by its first half";
  EXPECT_EQ(folded("rows * 0").constant_value(), std::nullopt);
  EXPECT_EQ(folded("H == 1 ? x : VEC").constant_value(), 8);
  EXPECT_EQ(folded("H == 1 ? x : rows").reads(), std::vector<int>{5});
  EXPECT_EQ(folded("H / (VEC - 8)").constant_value(), std::nullopt) << "the fault stays";
  EXPECT_EQ(compile("H / VEC").constant_value(), std::nullopt) << "only folding works anything out";
  EXPECT_EQ(folded("ceil_div(rows * H, VEC)").text(), "ceil_div(rows * H, VEC)");
  for (const std::int64_t rows : {-17LL, -16LL, -1LL, 0LL, 1LL, 15LL, 16LL, 1LL << 40}) {
    const std::int64_t at[] = {0, 0, 0, 0, 0, rows, 0, 0};
    const std::int64_t original[] = {4096, 8, 2, 1, 0, rows, 90, 132};
    for (const char* text : {"ceil_div(rows, VEC)", "ceil_div(rows, 1)", "rows % VEC == 0", "rows % VEC != 0",
                             "(x ? rows : rows % VEC) == 0", "rows % 7 == 0 && true", "rows || false"}) {
      EXPECT_EQ(folded(text).evaluate(at), compile(text).evaluate(original)) << text << ", rows = " << rows;
    }
  }
  const std::int64_t most[] = {0, 0, 0, 0, 0, kMax, 0, 0};
  expect_error(Errc::requirement, {"overflow", "'rows * VEC'"}, [&] { folded("rows * VEC").evaluate(most); });
  expect_error(Errc::requirement, {"division by zero", "'H / (VEC - 8)'"},
               [&] { folded("H / (VEC - 8)").evaluate(most); });
}

}  // namespace
}  // namespace kiln::source

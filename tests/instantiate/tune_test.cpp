// The candidates of a search, and the choices that are accepted.
#include "instantiate/tune.hpp"

#include "support/expect_error.hpp"
#include "tests/manifest/text.hpp"

namespace kiln::source {
namespace {

const base::Arch kTunedFor{90};

/// A manifest of f<N, A, B>. A is 1, 2 or 4. B is tuned over 4 and 8, and twice A by
/// default. A * B is at most 16.
std::string text(const std::string& more = "", const std::string& tune_a = "[1, 2, 4]") {
  return "format = 1\n[template]\nname = \"f\"\nsource = \"f.cu\"\ninstantiate = \"f<{N}, {A}, {B}, "
         "{MODE}>\"\n" +
         more +
         "[param.N]\nkind = \"int\"\nrange = [1, 9]\n"
         "[param.A]\nkind = \"int\"\nvalues = [1, 2, 4]\ndefault = 2\ntune = " +
         tune_a +
         "\n[param.B]\nkind = \"int\"\nrange = [1, 64]\ndefault = \"2 * A\"\ntune = [4, 8]\n"
         "[param.MODE]\nkind = \"enum\"\nvalues = { slow = \"0\", fast = \"1\" }\ndefault = \"slow\"\n"
         "[[require]]\nexpr = \"A * B <= 16\"\nmessage = \"{A} x {B} is too much\"\n"
         "[launch]\ngrid = [\"1\"]\nblock = [\"1\"]\n";
}

std::vector<std::string> names(const Candidates& candidates) {
  std::vector<std::string> out;
  for (const Candidate& c : candidates.all) {
    out.emplace_back();
    for (const Parameter& p : c.chosen) out.back() += p.name + p.value;
  }
  return out;
}

TEST(TuneCandidates, AreTheProductWithDefaultsThatTheManifestAllowsTheDefaultFirst) {
  const Manifest m = parse(text());
  const Value values[] = {3};
  const Candidates found = tune_candidates(m, values, kTunedFor);
  EXPECT_EQ(names(found), (std::vector<std::string>{"A2B4", "A2B8", "A1B2", "A1B4", "A1B8", "A4B4"}));
  ASSERT_EQ(found.refused.size(), 2u) << "4 x 8, said so and as the default of 4";
  EXPECT_EQ(found.refused[0].first, "A=4");
  EXPECT_NE(found.refused[0].second.find("4 x 8 is too much"), std::string::npos);
  EXPECT_EQ(found.refused[1].first, "A=4 B=8");
}

TEST(TuneCandidates, LeaveGivenParametersAlone) {
  const Manifest m = parse(text());
  const Value values[] = {3, 1};
  EXPECT_EQ(free_to_tune(m, values), (std::vector<std::size_t>{2}));
  EXPECT_EQ(names(tune_candidates(m, values, kTunedFor)), (std::vector<std::string>{"B2", "B4", "B8"}));
  const Value all[] = {3, 1, 2};
  EXPECT_TRUE(free_to_tune(m, all).empty());
}

TEST(TuneCandidates, OfEveryKindAreNamed) {
  std::string enums = text();
  enums.replace(enums.find("default = \"slow\"\n"), 17, "default = \"slow\"\ntune = [\"slow\", \"fast\"]\n");
  const Manifest m = parse(enums);
  const Value values[] = {3, 1, 2};
  EXPECT_EQ(names(tune_candidates(m, values, kTunedFor)), (std::vector<std::string>{"MODEslow", "MODEfast"}));
}

TEST(TuneCandidates, AreNotTriedWhenTheDefaultIsRefused) {
  const Manifest m = parse(text());
  const Value values[] = {3, 4};
  expect_error(Errc::requirement, {"4 x 8 is too much"}, [&] { tune_candidates(m, values, kTunedFor); });
}

TEST(TuneCandidates, MayChangeBitsOnlyWhereTheManifestSaysSo) {
  EXPECT_FALSE(parse(text()).tune_changes_bits);
  EXPECT_TRUE(parse(text("tune_changes_bits = true\n")).tune_changes_bits);
}

/// The candidates of f<VEC> with one rule or one alignment. VEC is 8 by default, and tuned over 4, 6 and 16.
Candidates candidates_under(const std::string& rule, const std::string& align = "") {
  const Manifest m = parse(
      "format = 1\n[template]\nname = \"f\"\nsource = \"f.cu\"\ninstantiate = \"f<{VEC}>\"\n"
      "[param.VEC]\nkind = \"int\"\nrange = [1, 64]\ndefault = 8\ntune = [4, 6, 16]\n"
      "[derive]\nPAIRS = \"VEC / 2\"\nWAVES = \"64 / VEC\"\n" +
      (rule.empty() ? "" : "[[require]]\nexpr = \"" + rule + "\"\nmessage = \"no\"\n") +
      "[[arg]]\nname = \"x\"\ntype = \"ptr<f32>\"\n" + (align.empty() ? "" : "align = \"" + align + "\"\n") +
      "[[arg]]\nname = \"rows\"\ntype = \"i64\"\n[[arg]]\nname = \"step\"\ntype = \"i64\"\n"
      "[launch]\ngrid = [\"1\"]\nblock = [\"1\"]\n");
  return tune_candidates(m, {}, kTunedFor);
}
using Names = std::vector<std::string>;

TEST(TuneCandidates, TakeEveryLaunchThatTheDefaultTakes) {
  const auto left = [](const std::string& rule, const std::string& align = "") {
    return names(candidates_under(rule, align));
  };
  EXPECT_EQ(left(""), (Names{"VEC8", "VEC4", "VEC6", "VEC16"}));
  EXPECT_EQ(left("rows == 1 || step % VEC == 0"), (Names{"VEC8", "VEC4"})) << "6 divides no 8";
  EXPECT_EQ(left("rows >= 0"), (Names{"VEC8", "VEC4", "VEC6", "VEC16"})) << "reads nothing that is tuned";
  EXPECT_EQ(left("VEC < 16 || rows > 0"), (Names{"VEC8", "VEC4", "VEC6"})) << "always so of 4 and 6";
  EXPECT_EQ(left("rows < 1000 || VEC != 4"), (Names{"VEC8", "VEC6", "VEC16"}))
      << "4 divides 8, and is stricter; 6 and 16 do the same as 8";
  EXPECT_EQ(left("step % PAIRS == 0"), (Names{"VEC8", "VEC4"})) << "by a derive";
  EXPECT_EQ(left("rows <= 1000 * VEC"), (Names{"VEC8"})) << "what grows with it";
  EXPECT_EQ(left("rows % WAVES == 0"), (Names{"VEC8", "VEC16"})) << "4 instead of 8";
  EXPECT_EQ(left("", "4 * VEC"), (Names{"VEC8", "VEC4"}));
  EXPECT_EQ(left("", "min(16, 4 * VEC)"), (Names{"VEC8", "VEC4", "VEC6", "VEC16"})) << "as much of all";
  const Candidates found = candidates_under("", "4 * VEC");
  ASSERT_EQ(found.refused.size(), 2u);
  EXPECT_EQ(found.refused[1].first, "VEC=16");
  EXPECT_NE(
      found.refused[1].second.find("stricter than the default: argument 'x' must be aligned to 4 * VEC"),
      std::string::npos);
}

TEST(TuneChoice, TakesThePlacesOfTheFreeParameters) {
  const Manifest m = parse(text());
  const Value values[] = {3};
  const std::vector<Parameter> chosen{{"A", "1"}, {"B", "8"}};
  const auto given = with_choice(m, values, chosen);
  ASSERT_TRUE(given);
  EXPECT_EQ(resolve(m, *given, kTunedFor).specialization.to_string(), "f N=3 A=1 B=8 MODE=slow");
}

TEST(TuneChoice, IsNothingWhenItIsNotOfThisCall) {
  const Manifest m = parse(text());
  const Value values[] = {3}, with_a[] = {3, 1};
  const auto of = [&](std::span<const Value> call, const std::vector<Parameter>& chosen) {
    return with_choice(m, call, chosen).has_value();
  };
  EXPECT_TRUE(of(values, {{"A", "1"}, {"B", "8"}}));
  EXPECT_FALSE(of(values, {{"A", "1"}}));
  EXPECT_FALSE(of(values, {{"B", "8"}, {"A", "1"}}));
  EXPECT_FALSE(of(values, {{"A", "3"}, {"B", "8"}})) << "3 is no value of A";
  EXPECT_FALSE(of(values, {{"A", "1"}, {"B", "65"}}));
  EXPECT_FALSE(of(values, {{"A", "1"}, {"B", "8; x"}}));
  EXPECT_FALSE(of(with_a, {{"A", "1"}, {"B", "8"}}));
  EXPECT_TRUE(of(with_a, {{"B", "8"}}));
}

}  // namespace
}  // namespace kiln::source

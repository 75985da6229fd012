// [family]: which member serves a value, and what is refused.
#include <cstdint>

#include "instantiate/plan.hpp"
#include "tests/manifest/text.hpp"

namespace kiln::source {
namespace {

const std::string kFamily = R"toml([param.ROWS]
kind = "int"
values = [8, 16, 64]
[family]
by = "rows"
parameter = "ROWS"
)toml";

std::string without(const std::string& from, const std::string& to) {
  std::string out = kFamily;
  return with(out.replace(out.find(from), from.size(), to));
}

TEST(ManifestFamily, AnArgumentPicksAValueOfAParameter) {
  const Manifest m = parse(with(kFamily));
  ASSERT_TRUE(m.family);
  EXPECT_EQ(m.arguments[static_cast<std::size_t>(m.family->by)].name, "rows");
  EXPECT_EQ(m.parameters[static_cast<std::size_t>(m.family->parameter)].name, "ROWS");
  EXPECT_EQ(m.family->edges.all(), (std::vector<std::int64_t>{8, 16, 64}));
  EXPECT_EQ(summary(*m.family, m), "rows picks ROWS: 8, 16, 64; 64 also for all above");
  EXPECT_FALSE(parse(kManifest).family);
  EXPECT_NO_THROW(parse("needs = [\"family\"]\n" + with(kFamily)));
}

TEST(ManifestFamily, BelongsToTheMainEntryPoint) {
  const Manifest m =
      parse(with(kFamily) +
            "[[kernel]]\nname = \"other\"\ninstantiate = \"g<{ROWS}>\"\nlaunch = { grid = [1], "
            "block = [32] }\n");
  EXPECT_TRUE(m.family);
  ASSERT_EQ(m.entries.size(), 1u);
  EXPECT_FALSE(m.entries[0]->family);
}

TEST(ManifestFamily, IsRefusedWithItsReason) {
  expect_refused(without("by = \"rows\"\n", ""), "[family]", {"needs 'by'"});
  expect_refused(without("parameter = \"ROWS\"\n", ""), "[family]", {"needs 'parameter'"});
  expect_refused(without("\"rows\"", "\"row\""), "by = \"row\"",
                 {"'row' is no argument", "did you mean 'rows'?", "may pick the member: rows stride_x"});
  expect_refused(without("\"rows\"", "\"x\""), "by = \"x\"", {"'x' is ptr<T>", "picked by an integer"});
  expect_refused(without("\"rows\"", "\"eps\""), "by = \"eps\"", {"'eps' is f32", "picked by an integer"});
  expect_refused(
      without("\"rows\"", "\"n\"") + "[[arg]]\nname = \"n\"\ntype = \"i32\"\nvalue = 1\noptional = true\n",
      "by = \"n\"", {"'n' is optional, and every launch must pick a member"});
  expect_refused(without("parameter = \"ROWS\"", "parameter = \"ROW\""), "parameter = \"ROW\"",
                 {"'ROW' is no parameter", "did you mean 'ROWS'?"});
  expect_refused(without("parameter = \"ROWS\"", "parameter = \"H\""), "parameter = \"H\"",
                 {"'H' is an int with a range", "values = [8, 16, 32]"});
  expect_refused(without("parameter = \"ROWS\"", "parameter = \"T\""), "parameter = \"T\"",
                 {"'T' is of kind dtype", "must be an int with a list"});
  expect_refused(without("[8, 16, 64]", "[8, 64, 16]"), "parameter = \"ROWS\"",
                 {"the values of 'ROWS' must ascend", "16 follows 64"});
  expect_refused(without("[8, 16, 64]", "[0, 16, 64]"), "parameter = \"ROWS\"",
                 {"must be 1 or more; 0 is not"});
  expect_refused(without("values = [8, 16, 64]", "values = [8, 16, 64]\ntune = [8]"), "parameter = \"ROWS\"",
                 {"'ROWS' has tune", "remove tune"});
  expect_refused(with(kFamily + "edges = [8]\n"), "edges", {"edges", "unknown"});
  std::string many = "values = [1";
  for (int i = 2; i <= 257; ++i) many += ", " + std::to_string(i);
  expect_refused(without("values = [8, 16, 64", many), "parameter = \"ROWS\"", {"257 members; at most 256"});
}

TEST(FamilyEdges, TheFirstEdgeThatIsNotBelowTheValueServesIt) {
  for (const std::vector<std::int64_t>& all : {std::vector<std::int64_t>{8, 16, 64},
                                               {1},
                                               {7},
                                               {1, 2, 3, 4, 5, 6, 7, 100},
                                               {3, 5, 6, 9, 1000, 1001},
                                               {1, INT64_MAX},
                                               {std::int64_t{1} << 62, (std::int64_t{1} << 62) + 1}}) {
    const FamilyEdges edges(all);
    std::vector<std::int64_t> values{INT64_MIN, -1, 0, 1, 2, INT64_MAX - 1, INT64_MAX};
    for (std::int64_t value = 3; value < 1100; ++value) values.push_back(value);
    for (int bit = 10; bit < 63; ++bit)
      for (const std::int64_t near : {-1, 0, 1}) values.push_back((std::int64_t{1} << bit) + near);
    for (const std::int64_t value : values) {
      std::size_t expected = 0;
      while (expected + 1 < all.size() && all[expected] < value) ++expected;
      EXPECT_EQ(edges.of(value), expected) << value << " of " << all.size();
      EXPECT_EQ(edges.edge_of(value), all[expected]);
    }
  }
}

TEST(ManifestFamily, AStarInAPlanStandsForEveryMember) {
  const Manifest m = parse(with(kFamily + "[[prewarm]]\nT = \"*\"\nH = [1, 2]\nROWS = \"*\"\n"));
  EXPECT_EQ(shipped_plan(m).size(), 3u * 2u * 3u);
  expect_refused(with(kFamily + "[[prewarm]]\nT = \"f32\"\nH = \"*\"\nROWS = 8\n"), "H = \"*\"",
                 {"every value of a parameter that lists its values", "'H' allows 1 to 65536"});
  expect_refused(with(kFamily + "[[prewarm]]\nT = \"f32\"\nH = 1\nROWS = [8, \"*\"]\n"), "ROWS = [8",
                 {"must stand alone"});

  const auto rows =
      parse_plan("[[prewarm]]\ntemplate = \"rms_norm\"\nT = \"f16\"\nH = 64\nROWS = \"*\"\n", "p");
  ASSERT_EQ(rows.size(), 1u);
  const auto members = with_every_value(rows[0], m);
  ASSERT_EQ(members.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(members[i].values[0].value, "f16");
    EXPECT_EQ(members[i].values[2].value, std::to_string(m.family->edges.all()[i]));
  }
  const auto ranged = parse_plan("[[prewarm]]\ntemplate = \"rms_norm\"\nH = \"*\"\n", "p");
  expect_error(Errc::invalid_value, {"parameter 'H'", "this one allows 1 to 65536"},
               [&] { with_every_value(ranged[0], m); });
}

}  // namespace
}  // namespace kiln::source

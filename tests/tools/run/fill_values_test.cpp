#include "tools/kiln/run/fill_values.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

TEST(FillValues, APermutationHasEachIndexOnce) {
  for (const std::uint64_t n : {1, 2, 7, 1000, 65537}) {
    std::vector<std::int64_t> values = random_permutation(n, n);
    const bool moved = !std::is_sorted(values.begin(), values.end());
    EXPECT_EQ(moved, n > 2 || values[0] == 1) << n;
    std::sort(values.begin(), values.end());
    for (std::uint64_t i = 0; i < n; ++i) ASSERT_EQ(values[i], static_cast<std::int64_t>(i));
  }
  EXPECT_TRUE(random_permutation(0, 1).empty());
}

TEST(FillValues, EveryPermutationOfThreeComes) {
  std::set<std::vector<std::int64_t>> seen;
  for (std::uint64_t seed = 0; seed < 100; ++seed) seen.insert(random_permutation(3, seed));
  EXPECT_EQ(seen.size(), 6u);
}

TEST(FillValues, OffsetsAscendFromZeroToTheTotalWithEmptyRuns) {
  for (const std::uint64_t entries : {2, 3, 5, 9, 1025}) {
    for (const std::int64_t total :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{4096}, std::int64_t{1} << 40}) {
      for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const auto values = random_offsets(entries, total, seed);
        ASSERT_EQ(values.size(), entries);
        ASSERT_EQ(values.front(), 0);
        ASSERT_EQ(values.back(), total);
        ASSERT_TRUE(std::is_sorted(values.begin(), values.end()));
        const bool some_empty = std::adjacent_find(values.begin(), values.end()) != values.end();
        if (entries >= 5) {
          ASSERT_TRUE(some_empty) << entries << ' ' << total << ' ' << seed;
        }
      }
    }
  }
  const auto many = random_offsets(1025, 1 << 20, 3);
  std::set<std::int64_t> lengths;
  for (std::size_t i = 1; i < many.size(); ++i) lengths.insert(many[i] - many[i - 1]);
  EXPECT_GT(lengths.size(), 100u) << "lengths are random";
  EXPECT_EQ(random_offsets(1, 0, 3), std::vector<std::int64_t>{0});
}

TEST(FillValues, IntegersCoverTheirRangeAndNoMore) {
  const auto few = random_integers(1000, -2, 2, 1);
  EXPECT_EQ(std::set<std::int64_t>(few.begin(), few.end()), (std::set<std::int64_t>{-2, -1, 0, 1, 2}));
  constexpr std::int64_t low = (std::int64_t{1} << 24) + 1;
  for (const std::int64_t value : random_integers(1000, low, low, 1)) EXPECT_EQ(value, low) << "exactly";
  using Limits = std::numeric_limits<std::int64_t>;
  const auto wide = random_integers(100, Limits::min(), Limits::max(), 1);
  EXPECT_TRUE(std::any_of(wide.begin(), wide.end(), [](std::int64_t v) { return v < 0; }));
  EXPECT_TRUE(std::any_of(wide.begin(), wide.end(), [](std::int64_t v) { return v > 0; }));
}

TEST(FillValues, TheSeedDecides) {
  EXPECT_EQ(random_permutation(100, 5), random_permutation(100, 5));
  EXPECT_NE(random_permutation(100, 5), random_permutation(100, 6));
  EXPECT_EQ(Draws(0).next(), 0xe220a8397b1dcdafu) << "SplitMix64's first value for seed 0";
}

TEST(FillValues, ElementsHaveTheirTypesWidthAndRange) {
  const std::vector<std::int64_t> values{-1, 7};
  const std::string bytes = elements_of(values, Dtype::i32, "x");
  std::int32_t out[2];
  ASSERT_EQ(bytes.size(), sizeof out);
  std::memcpy(out, bytes.data(), sizeof out);
  EXPECT_EQ(out[0], -1);
  EXPECT_EQ(out[1], 7);
  EXPECT_EQ(elements_of(values, Dtype::i64, "x").size(), 16u);
  const std::vector<std::int64_t> large{std::int64_t{1} << 32};
  for (const auto& [refused, dtype] : {std::pair(values, Dtype::u32),
                                       {values, Dtype::u64},
                                       {large, Dtype::u32},
                                       {large, Dtype::i32},
                                       {values, Dtype::f32}}) {
    try {
      elements_of(refused, dtype, "the fill of argument 'x'");
      ADD_FAILURE() << to_string(dtype);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::invalid_value);
      EXPECT_NE(std::string(error.what()).find("'x'"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find(to_string(dtype)), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace kiln::cli

// The cost of the first n tiles, which Tiles sums without visiting each tile, compared
// with a walk over all tiles.
#include <limits>
#include <random>

#include "attention/fixture.hpp"
#include "attention/layout.hpp"
#include "attention/tiles.hpp"

namespace kiln::attention::test {
namespace {

/// The costs by a walk over every tile: element n is the cost of the first n tiles.
std::vector<std::int64_t> walked(const KernelShape& shape, const Tiles& tiles) {
  std::vector<std::int64_t> ends{0};
  for (std::int64_t i = 0; i < tiles.count(); ++i)
    ends.push_back(ends.back() + tiles.kv_blocks_of(tiles.range(i)) + shape.tile_cost);
  return ends;
}

void expect_as_walked(const KernelShape& given, const Windows& windows, const Request& request,
                      std::mt19937& random) {
  const work_list::TileShape shape(given);
  const Slope slope(shape, true);
  const Tiles tiles(shape, slope, windows, request);
  const auto ends = walked(shape, tiles);
  SCOPED_TRACE(::testing::Message() << "tile_rows " << shape.tile_rows << " tile_kv " << shape.tile_kv
                                    << " group " << shape.group << " causal " << shape.causal << " window "
                                    << windows.left << ", " << windows.right << " qo_len " << request.qo_len
                                    << " kv_len " << request.kv_len);
  ASSERT_EQ(tiles.cost(), ends.back());
  const auto at = [&](std::int64_t n) { return ends[static_cast<std::size_t>(n)]; };
  for (std::int64_t n = 0; n <= tiles.count(); ++n) ASSERT_EQ(tiles.cost(n), at(n)) << n;
  const auto draw = [&](std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(0, most)(random);
  };
  for (int i = 0; i < 20; ++i) {
    const std::int64_t from = draw(tiles.count()), until = at(from) + draw(ends.back() - at(from) + 2);
    const auto found = tiles.within(until, {from, at(from)});
    ASSERT_GE(found.tiles, from);
    ASSERT_LE(found.tiles, tiles.count());
    ASSERT_EQ(found.cost, at(found.tiles));
    ASSERT_LE(found.cost, until);
    ASSERT_TRUE(found.tiles == tiles.count() || at(found.tiles + 1) > until);
  }
}

TEST(AttentionTiles, TakeWhatAWalkOverThemTakes) {
  std::mt19937 random(1);
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int i = 0; i < 4000; ++i) {
    const KernelShape shape{.tile_rows = draw(1, 300),
                            .tile_kv = draw(1, 300),
                            .group = draw(1, 20),
                            .causal = draw(0, 3) > 0,
                            .window = draw(0, 1) > 0,
                            .tile_cost = draw(0, 3)};
    const auto tokens = [&] { return narrow(draw(0, draw(0, 4) > 0 ? 300 : 5000)); };
    const Windows windows{shape.window ? draw(-1, 2000) : -1, shape.causal ? -1 : draw(-1, 2000)};
    expect_as_walked(shape, windows, {0, tokens(), 0, tokens()}, random);
    if (HasFatalFailure()) return;
  }
}

TEST(AttentionTiles, SumsOfAnyLengthAreThoseOfEuclid) {
  std::mt19937_64 random(1);
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int i = 0; i < 20'000; ++i) {
    const KernelShape shape{.tile_rows = draw(1, 400), .tile_kv = draw(1, 30), .group = draw(1, 20)};
    const Slope slope(shape, true), without_table(shape, false);
    const std::int64_t most = draw(0, 1) > 0 ? 100 : kMost / slope.rise, n = draw(1, most);
    const std::int64_t rest = draw(0, slope.run - 1);
    std::int64_t walked = 0;
    for (std::int64_t t = 0; most == 100 && t < n; ++t) walked += (slope.rise * t + rest) / slope.run;
    const auto euclid = static_cast<std::int64_t>(
        work_list::floor_sum(static_cast<std::uint64_t>(n), static_cast<std::uint64_t>(slope.run),
                             static_cast<std::uint64_t>(slope.rise), static_cast<std::uint64_t>(rest)));
    if (most == 100) {
      ASSERT_EQ(euclid, walked);
    }
    ASSERT_EQ(without_table.sum(n, rest), euclid);
    ASSERT_EQ(slope.sum(n, rest), euclid)
        << slope.rise << '/' << slope.run << " of " << n << " from " << rest;
  }
}

TEST(AttentionTiles, TakeWhatAWalkOverThemTakesOfTheMostThereCanBe) {
  std::mt19937 random(1);
  // 31 bits of packed rows, the most kv tokens, and sizes for which tiles and blocks never end together.
  for (const auto& [rows, kv, group] : {std::tuple{65536, 65536, 2}, {65536, 65535, 3}, {65521, 97, 2}})
    for (const std::int32_t kv_len : {narrow(kMostTokens), 1 << 20, 0}) {
      KernelShape shape{.tile_rows = rows, .tile_kv = kv, .group = group, .window = true};
      const auto qo_len = narrow((kMost - rows) / group);
      for (const std::int64_t window :
           {std::int64_t{-1}, std::int64_t{100'000}, kMostTokens, std::numeric_limits<std::int64_t>::max()})
        for (const bool causal : {true, false}) {
          shape.causal = causal;
          const Request request{0, std::min(qo_len, narrow(kMostTokens)), 0, kv_len};
          expect_as_walked(shape, {window, causal ? -1 : window}, request, random);
        }
    }
}

}  // namespace
}  // namespace kiln::attention::test

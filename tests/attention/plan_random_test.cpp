// Plans of random batches: properties of every plan, for any lengths.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "attention/fixture.hpp"

namespace kiln::attention::test {
namespace {

struct Batch {
  KernelShape shape;
  Limits limits;
  std::vector<std::int32_t> qo, kv;
  std::int64_t window_left = -1, window_right = -1;
  bool decode = false;
  Lengths lengths() const {
    return {.requests = static_cast<std::int64_t>(kv.size()) - 1,
            .qo_indptr = decode ? nullptr : qo.data(),
            .kv_indptr = kv.data(),
            .window_left = window_left,
            .window_right = window_right};
  }
};

/// Draws batches that are small enough to check every kv token of every row.
class Draw : public Draws {
 public:
  using Draws::Draws;

  std::vector<std::int32_t> indptr(std::int64_t requests, std::int64_t most) {
    std::vector<std::int32_t> out{static_cast<std::int32_t>((*this)(0, 5))};
    for (std::int64_t i = 0; i < requests; ++i) {
      const std::int64_t length = one_in(5) ? 0 : one_in(4) ? 1 : one_in(4) ? most : (*this)(1, most);
      out.push_back(out.back() + static_cast<std::int32_t>(length));
    }
    return out;
  }

  Batch batch() {
    Batch out;
    out.shape = {.tile_rows = of({1, 3, 8, 16, 128}),
                 .tile_kv = of({1, 2, 7, 16, 64}),
                 .group = of({1, 2, 4, 7, 16}),
                 .causal = !one_in(3),
                 .window = one_in(2),
                 .tile_cost = (*this)(0, 3),
                 .min_kv_blocks = (*this)(1, 5)};
    out.shape.heads_together = one_in(2), out.shape.tiles_together = one_in(2);
    const std::int64_t requests = (*this)(1, 12);
    out.decode = one_in(3);
    out.qo = out.decode ? std::vector<std::int32_t>(static_cast<std::size_t>(requests) + 1)
                        : indptr(requests, of({1, 9, 70}));
    if (out.decode) std::iota(out.qo.begin(), out.qo.end(), 0);
    out.kv = indptr(requests, of({1, 40, 300}));
    if (out.shape.window && !one_in(4)) out.window_left = of({0, 1, 5, 64, 1000});
    if (out.shape.window && !out.shape.causal && !one_in(3)) out.window_right = of({0, 1, 5, 64, 1000});
    out.limits = {.max_requests = requests + (*this)(0, 3),
                  .max_tokens = std::max(1, out.qo.back() - out.qo.front()) + (*this)(0, 20),
                  .kv_heads = one_in(4) ? of({6, 8}) : (*this)(1, 3),
                  .workers = of({1, 2, 3, 7, 31, 132})};
    return out;
  }
};

using Tile = std::tuple<std::int32_t, std::int32_t, std::int32_t>;  // request, head, first row

/// The tiles of a plan, each with its items in the plan's order.
std::map<Tile, std::vector<PlannedItem>> tiles_of(const Planned& plan) {
  std::map<Tile, std::vector<PlannedItem>> out;
  for (const PlannedItem& item : plan.items())
    out[{item.request, item.kv_head, item.first_row}].push_back(item);
  return out;
}

class AttentionPlanOf : public ::testing::TestWithParam<unsigned> {
 protected:
  static constexpr int kBatches = 100;
  template <class Check>
  void each(Check&& check) {
    Draw draw(GetParam());
    for (int i = 0; i < kBatches; ++i) {
      const Batch batch = draw.batch();
      const Planned plan(batch.shape, batch.limits, batch.lengths());
      check(batch, plan);
      if (HasFatalFailure()) {
        ADD_FAILURE() << "batch " << i;
        return;
      }
    }
  }
};

/// Checks the kv tokens of a tile: all from the first to the last token that a row sees, once each. The range
/// begins at the start of the first token's block.
void expect_tile(const Batch& batch, const Request& r, std::int64_t first_row,
                 const std::vector<PlannedItem>& items) {
  const KernelShape& shape = batch.shape;
  const auto kv_len = static_cast<std::size_t>(r.kv_len);
  std::vector<int> times(kv_len), wanted(kv_len);
  for (const PlannedItem& item : items) {
    ASSERT_EQ((Request{item.qo_begin, item.qo_len, item.kv_base, item.kv_len}), r);
    ASSERT_TRUE(0 <= item.kv_begin && item.kv_begin <= item.kv_end && item.kv_end <= r.kv_len);
    ASSERT_EQ(item.kv_begin % shape.tile_kv, 0);
    for (std::int32_t j = item.kv_begin; j < item.kv_end; ++j) ++times[static_cast<std::size_t>(j)];
  }
  const std::int64_t rows = std::min<std::int64_t>(r.qo_len * shape.group, first_row + shape.tile_rows);
  std::int64_t first = r.kv_len, last = -1;
  for (std::int64_t j = 0; j < r.kv_len; ++j) {
    for (std::int64_t row = first_row; row < rows; ++row) {
      if (!sees(shape, batch.window_left, batch.window_right, r, row / shape.group, j)) continue;
      first = std::min(first, j), last = j;
      break;
    }
  }
  for (std::int64_t j = first / shape.tile_kv * shape.tile_kv; j <= last; ++j)
    wanted[static_cast<std::size_t>(j)] = 1;
  ASSERT_EQ(times, wanted);
}

void expect_covered(const Batch& batch, const Planned& plan) {
  auto tiles = tiles_of(plan);
  for (std::int32_t i = 0; i + 1 < std::ssize(batch.kv); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const Request r{batch.qo[at], batch.qo[at + 1] - batch.qo[at], batch.kv[at],
                    batch.kv[at + 1] - batch.kv[at]};
    ASSERT_EQ(plan.request(i), r);
    for (std::int32_t row = 0; row < r.qo_len * batch.shape.group;
         row += static_cast<std::int32_t>(batch.shape.tile_rows)) {
      for (std::int32_t head = 0; head < batch.limits.kv_heads; ++head) {
        const auto tile = tiles.extract({i, head, row});
        ASSERT_FALSE(tile.empty()) << "request " << i << " head " << head << " row " << row;
        ASSERT_NO_FATAL_FAILURE(expect_tile(batch, r, row, tile.mapped()))
            << "request " << i << " head " << head << " row " << row;
      }
    }
  }
  ASSERT_TRUE(tiles.empty()) << "a tile that is none";
}

TEST_P(AttentionPlanOf, CoversEachKvTokenOfEachRowOnce) { each(expect_covered); }

TEST_P(AttentionPlanOf, SharesAreBalancedWithinTheBound) {
  each([](const Batch& batch, const Planned& plan) {
    const KernelShape& shape = batch.shape;
    const std::int64_t used = plan.summary.workers, team = team_of(shape, batch.limits);
    ASSERT_LE(used, batch.limits.workers);
    ASSERT_EQ(used % team, 0) << "whole teams";
    std::int64_t total = 0;
    for (const auto& [tile, items] : tiles_of(plan)) {
      total += shape.tile_cost;
      for (const PlannedItem& item : items) total += kv_blocks_of(shape, item);
    }
    ASSERT_EQ(total, plan.summary.cost);
    std::int64_t busy = 0;
    for (std::int64_t w = 0; w < batch.limits.workers; ++w) {
      const auto items = plan.items_of(w);
      busy += std::ranges::any_of(items, [](const PlannedItem& item) { return item.kv_begin < item.kv_end; });
    }
    ASSERT_TRUE(plan.word(9) == busy || shape.tiles_together) << plan.word(9) << " are busy, not " << busy;
    ASSERT_EQ(plan.word(10), 0);
    if (total == 0) return;
    // The number of teams whose shares have at least min_kv_blocks + tile_cost units each.
    const std::int64_t teams = std::clamp<std::int64_t>(
        total / team / (shape.min_kv_blocks + shape.tile_cost), 1, batch.limits.workers / team);
    const std::int64_t even = total / team / teams, slack = 2 * shape.tile_cost + shape.min_kv_blocks - 1;
    const auto tiles = std::ssize(tiles_of(plan));
    bool alone = tiles <= batch.limits.workers / team * team;  // and no tile is longer than below
    for (const auto& [tile, items] : tiles_of(plan)) {
      std::int64_t cost = shape.tile_cost;
      for (const PlannedItem& item : items) cost += kv_blocks_of(shape, item);
      alone = alone && cost <= even + slack + shape.tile_cost;
    }
    ASSERT_TRUE(alone ? used == tiles : used <= teams * team) << used << " workers for " << tiles << " tiles";
    const std::int64_t most = even + 2 * (shape.min_kv_blocks - 1) + 2 * shape.tile_cost + 1;
    for (std::int64_t w = 0; w < batch.limits.workers; ++w) {
      std::int64_t cost = 0;
      const auto items = plan.items_of(w);
      for (const PlannedItem& item : items) cost += kv_blocks_of(shape, item) + shape.tile_cost;
      ASSERT_EQ(items.empty(), w >= used) << "worker " << w;
      if (alone && w < used) {
        ASSERT_TRUE(items.size() == 1 && items[0].parts == 1) << "worker " << w;
        continue;
      }
      ASSERT_LE(cost, most) << "worker " << w;
      if (w < used - team) {
        ASSERT_GE(cost, even - (shape.min_kv_blocks - 1) - shape.tile_cost) << "worker " << w;
      }
    }
    if (slack == 0 && !alone) {  // every cut is where it falls, so all shares are equal
      ASSERT_EQ(used, teams * team);
      for (std::int64_t w = 0; w < used; ++w) {
        std::int64_t cost = 0;
        for (const PlannedItem& item : plan.items_of(w)) cost += kv_blocks_of(shape, item);
        ASSERT_GE(cost, even) << "worker " << w;
        ASSERT_LE(cost, even + 1) << "worker " << w;
      }
    }
  });
}

TEST_P(AttentionPlanOf, PartsHaveSlotsOfTheirOwnAndAreTheEndsOfShares) {
  each([](const Batch& batch, const Planned& plan) {
    std::set<std::int32_t> slots, counters;
    for (const auto& [tile, items] : tiles_of(plan)) {
      for (std::size_t i = 0; i < items.size(); ++i) {
        ASSERT_EQ(items[i].part, static_cast<std::int32_t>(i)) << "parts in order";
        ASSERT_EQ(items[i].parts, static_cast<std::int32_t>(items.size()));
        ASSERT_EQ(items[i].first_slot, items.size() == 1 ? -1 : items[0].first_slot);
        ASSERT_TRUE(i == 0 || items[i].kv_begin == items[i - 1].kv_end);
        if (items.size() == 1) continue;
        ASSERT_GE(kv_blocks_of(batch.shape, items[i]), batch.shape.min_kv_blocks) << "a sliver";
        ASSERT_LT(items[i].kv_begin, items[i].kv_end) << "a part without kv";
        ASSERT_TRUE(slots.insert(items[i].first_slot + items[i].part).second) << "a slot twice";
      }
      ASSERT_TRUE(items.size() == 1 || counters.insert(items[0].first_slot / 2).second) << "a counter twice";
    }
    ASSERT_EQ(std::ssize(slots), plan.summary.slots);
    if (!slots.empty()) {
      ASSERT_EQ(*slots.begin(), 0);
      ASSERT_LT(*slots.rbegin(), 2 * batch.limits.workers - 1);
      ASSERT_LT(*counters.rbegin(), batch.limits.workers - 1);
    }
    for (std::int64_t w = 0; w < batch.limits.workers; ++w) {
      const auto items = plan.items_of(w);
      for (std::size_t i = 1; i + 1 < items.size(); ++i) ASSERT_EQ(items[i].parts, 1) << "worker " << w;
    }
    for (std::int64_t i = 0; i < plan.table(); ++i) ASSERT_EQ(plan.counter(i), 0);
  });
}

TEST_P(AttentionPlanOf, HasEachItemAtOneWorkerInTheLinesOrder) {
  each([](const Batch& batch, const Planned& plan) {
    ASSERT_EQ(plan.begin(0), 0);
    for (std::int64_t w = 0; w < batch.limits.workers; ++w) ASSERT_LE(plan.begin(w), plan.begin(w + 1));
    ASSERT_EQ(plan.begin(batch.limits.workers), plan.summary.items);
    const std::int64_t team = team_of(batch.shape, batch.limits);
    for (std::int64_t j = 0; j < team; ++j) {
      std::tuple before(-1, 0, 0, 0);
      for (std::int64_t w = j; w < batch.limits.workers; w += team) {
        for (const PlannedItem& item : plan.items_of(w)) {
          const std::tuple place(item.request, item.kv_head, item.first_row, item.kv_begin);
          ASSERT_LT(before, place) << "worker " << w;
          ASSERT_EQ(item.kv_head % team, j) << "worker " << w;
          before = place;
        }
      }
    }
  });
}

TEST_P(AttentionPlanOf, HasWholeTilesTogetherThatFollowEachOther) {
  each([](const Batch& batch, const Planned& plan) {
    if (!batch.shape.tiles_together) return;
    // A whole tile joins the item of the tile before it, unless a share or a part
    // begins or ends between them.
    std::int64_t wanted = 0;
    for (std::int64_t w = 0; w < batch.limits.workers; ++w) {
      const auto tiles = plan.items_of(w);
      for (std::size_t i = 0; i < tiles.size(); ++i) {
        wanted += i == 0 || tiles[i].parts > 1 || tiles[i - 1].parts > 1 ||
                  tiles[i].request != tiles[i - 1].request || tiles[i].kv_head != tiles[i - 1].kv_head;
      }
    }
    ASSERT_GE(plan.summary.items, wanted);
    // A share that begins at a tile's border has an item for that tile alone.
    ASSERT_LE(plan.summary.items, wanted + 2 * batch.limits.workers);
  });
}

void expect_first_items(const Batch& batch, const Planned& plan) {
  for (std::int64_t w = 0; w < batch.limits.workers; ++w) {
    if (plan.begin(w) < plan.begin(w + 1)) {
      ASSERT_EQ(plan.first_item(w), plan.item(plan.begin(w))) << "worker " << w;
    }
  }
}

TEST_P(AttentionPlanOf, HasACopyOfEachWorkersFirstItem) { each(expect_first_items); }

void expect_inside(const Batch& batch, const Planned& plan) {
  ASSERT_LE(plan.summary.words, plan.size() - 8);
  for (std::int64_t i = plan.summary.words; i < plan.size(); ++i)
    ASSERT_EQ(plan.word(i), Planned::kUntouched) << i;
  const auto is_first_item = [&](std::int64_t i) {  // not all workers have one
    return i >= plan.first_items() && i < plan.first_items() + 12 * batch.limits.workers;
  };
  for (std::int64_t i = 0; i < plan.summary.words; ++i)
    ASSERT_TRUE(is_first_item(i) || plan.word(i) != Planned::kUntouched) << i << " is not written";
  ASSERT_EQ(plan.word(1), batch.limits.workers);
  ASSERT_EQ(plan.word(2), batch.limits.kv_heads);
  ASSERT_EQ(plan.word(3), batch.window_left);
  ASSERT_EQ(plan.word(4), std::ssize(batch.kv) - 1);
  ASSERT_EQ(plan.word(5), batch.qo.back() - batch.qo.front());
  ASSERT_EQ(plan.word(6), batch.window_right);
  ASSERT_EQ(plan.begin(batch.limits.workers), plan.summary.items);
  ASSERT_EQ(plan.word(7), plan.summary.slots);
  ASSERT_EQ(plan.word(8), plan.first_items() + 12 * (batch.limits.workers + plan.summary.items))
      << "behind the last item";
}

TEST_P(AttentionPlanOf, StaysInsideItsBufferAndWhatItSaysIsThere) { each(expect_inside); }

INSTANTIATE_TEST_SUITE_P(Random, AttentionPlanOf, ::testing::Range(1u, 11u));

TEST(AttentionWaves, TilesGoToTheWorkerThatIsFreeFirst) {
  int in_waves = 0;
  for (unsigned seed = 1; seed < 400; ++seed) {
    Draw draw(seed);
    Batch batch = draw.batch();
    batch.shape.heads_together = false, batch.shape.resident_kv = draw.one_in(5) ? 100 : 1;
    batch.limits.workers = draw.of({1, 2, 3, 7, 31});
    const Planned plan(batch.shape, batch.limits, batch.lengths());
    expect_covered(batch, plan), expect_first_items(batch, plan), expect_inside(batch, plan);
    std::int64_t kv = 0, total = 0, longest = 0;
    for (std::size_t i = 0; i + 1 < batch.kv.size(); ++i)
      if (batch.qo[i + 1] > batch.qo[i]) kv += batch.kv[i + 1] - batch.kv[i];
    const auto tiles = tiles_of(plan);
    const bool waves =
        std::ssize(tiles) >= 8 * batch.limits.workers && kv * batch.limits.kv_heads > batch.shape.resident_kv;
    if (!waves) continue;
    ++in_waves;
    for (const auto& [tile, items] : tiles) {
      ASSERT_EQ(items.size(), 1u) << "seed " << seed << ": a tile is cut";
      const std::int64_t cost = kv_blocks_of(batch.shape, items[0]) + batch.shape.tile_cost;
      total += cost, longest = std::max(longest, cost);
    }
    ASSERT_EQ(plan.summary.items, std::ssize(tiles)) << "seed " << seed;
    // The tiles that workers have at the same time are near each other: of the tiles before a tile that is begun, all are begun.
    std::set<std::pair<std::int64_t, std::int64_t>> begun;  // when a tile begins, and its place on the line
    std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::int64_t> places;
    for (const auto& [tile, items] : tiles) {
      const auto [request, head, row] = tile;
      places[{request, head, -row}] = 0;
    }
    std::int64_t place = 0;
    for (auto& [tile, at] : places) at = place++;
    for (std::int64_t w = 0; w < batch.limits.workers; ++w) {
      std::int64_t cost = 0;
      for (const PlannedItem& item : plan.items_of(w)) {
        begun.emplace(cost, places.at({item.request, item.kv_head, -item.first_row}));
        cost += kv_blocks_of(batch.shape, item) + batch.shape.tile_cost;
      }
      ASSERT_LE(cost, total / batch.limits.workers + longest) << "seed " << seed << " worker " << w;
    }
    std::int64_t next = 0;
    for (const auto& [when, at] : begun) ASSERT_EQ(at, next++) << "seed " << seed << " at " << when;
  }
  EXPECT_GT(in_waves, 50);
}

TEST(AttentionPlan, TheWorstLengthsOfTheLimitsFitTheBuffer) {
  // The most tiles that the limits allow: every request has one token more than whole tiles.
  for (const std::int64_t requests : {1, 7, 64}) {
    const KernelShape shape{.tile_rows = 8, .tile_kv = 4, .group = 2, .tile_cost = 0, .min_kv_blocks = 1};
    std::vector<std::int32_t> qo{0}, kv{0};
    for (std::int64_t i = 0; i < requests; ++i) qo.push_back(qo.back() + 5), kv.push_back(kv.back() + 400);
    const Limits limits{.max_requests = requests, .max_tokens = qo.back(), .kv_heads = 3, .workers = 97};
    const Planned plan(shape, limits, {.requests = requests, .qo_indptr = qo.data(), .kv_indptr = kv.data()});
    EXPECT_EQ(
        plan.summary.items, requests * 2 * 3 + plan.summary.slots - [&] {
          std::set<std::int32_t> split;
          for (const auto& item : plan.items())
            if (item.parts > 1) split.insert(item.first_slot);
          return std::ssize(split);
        }());
    EXPECT_GE(plan.summary.slots, 97) << "each cut splits a tile here";
    EXPECT_LE(plan.size() - 8 - plan.summary.words, 12 * (2 + requests * 3)) << "the bound is a tight one";
  }
}

}  // namespace
}  // namespace kiln::attention::test

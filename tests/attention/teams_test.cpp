// Teams of workers, which have the same kv tokens of neighbouring heads. Plans without teams must be the
// plans from before teams existed.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "attention/fixture.hpp"

namespace kiln::attention::test {
namespace {

using Indptr = std::vector<std::int32_t>;

const KernelShape kDecode{.tile_rows = 4,
                          .tile_kv = 64,
                          .group = 4,
                          .causal = true,
                          .window = true,
                          .tile_cost = 1,
                          .min_kv_blocks = 1,
                          .heads_together = true};

std::int64_t team_size(std::int64_t kv_heads, std::int64_t workers) {
  return team_of(kDecode, {.kv_heads = kv_heads, .workers = workers});
}

TEST(AttentionTeams, AreTheMostHeadsThatLeaveAtMostOneWorkerIn32Out) {
  const Indptr kv{0, 1 << 20};
  const auto used = [&](std::int64_t kv_heads, std::int64_t workers) {
    return Planned(kDecode, {.max_requests = 1, .max_tokens = 1, .kv_heads = kv_heads, .workers = workers},
                   {.requests = 1, .kv_indptr = kv.data()})
        .summary.workers;
  };
  EXPECT_EQ(team_size(8, 132), 8);
  EXPECT_EQ(used(8, 132), 128);
  EXPECT_EQ(team_size(16, 132), 16) << "128 again";
  EXPECT_EQ(used(32, 132), 128) << "4 teams";
  EXPECT_EQ(team_size(96, 132), 32) << "96 and 48 would leave out a quarter";
  EXPECT_EQ(used(96, 132), 128);
  EXPECT_EQ(team_size(7, 6), 1);
  EXPECT_EQ(used(7, 6), 6);
  EXPECT_EQ(team_size(6, 7), 1) << "6 of 7 are too few";
  EXPECT_EQ(team_size(31, 32), 31) << "just enough";
  EXPECT_EQ(used(31, 32), 31);
  EXPECT_EQ(team_size(12, 132), 12);
  EXPECT_EQ(team_size(12, 128), 6) << "12 would leave out 8";
  EXPECT_EQ(used(40, 128), 128) << "teams of 8";
  EXPECT_EQ(used(8, 1), 1);
}

TEST(AttentionTeams, WithoutTokensAreNotBusy) {
  KernelShape shape = kDecode;
  shape.tile_kv = 128, shape.tile_cost = 0;
  // One request of 1024 units lies between 256 empty requests, which count one unit each. 16 teams have 80
  // units each, so the empty requests fill the shares at both ends.
  Indptr kv(129, 0);
  kv.resize(258, 1 << 17);
  const Planned plan(shape, {.max_requests = 257, .max_tokens = 257, .kv_heads = 8, .workers = 132},
                     {.requests = 257, .kv_indptr = kv.data()});
  EXPECT_EQ(plan.summary.workers, 128);
  EXPECT_EQ(plan.word(9), 14 * 8) << "the first team has 80 empty requests, the last one as many";
  const Indptr none(258, 0);
  const Planned idle(shape, {.max_requests = 257, .max_tokens = 257, .kv_heads = 8, .workers = 132},
                     {.requests = 257, .kv_indptr = none.data()});
  EXPECT_EQ(idle.word(9), 0);
}

TEST(AttentionTeams, HaveTheSameTokensOfNeighbouringHeads) {
  KernelShape shape = kDecode;
  shape.tile_cost = 0;
  const Indptr kv{0, 64 * 3, 64 * 4};
  const Planned plan(shape, {.max_requests = 2, .max_tokens = 2, .kv_heads = 2, .workers = 4},
                     {.requests = 2, .kv_indptr = kv.data()});
  // Two teams of two workers. The first team has two units of request 0. The second team has its
  // third unit and request 1.
  const std::vector<PlannedItem> expected = {
      {0, 0, 0, 0, 1, 192, 0, 0, 128, 0, 0, 2},   {0, 1, 0, 0, 1, 192, 0, 0, 128, 2, 0, 2},
      {0, 0, 0, 0, 1, 192, 0, 128, 192, 0, 1, 2}, {1, 0, 0, 1, 1, 64, 192, 0, 64, -1, 0, 1},
      {0, 1, 0, 0, 1, 192, 0, 128, 192, 2, 1, 2}, {1, 1, 0, 1, 1, 64, 192, 0, 64, -1, 0, 1}};
  EXPECT_EQ(plan.items(), expected);
  EXPECT_EQ(plan.summary.slots, 4);
  EXPECT_EQ(plan.summary.cost, 8);
  for (std::int64_t w = 0; w <= 4; ++w) EXPECT_EQ(plan.begin(w), (std::vector{0, 1, 2, 4, 6})[w]) << w;
}

struct TeamBatch {
  KernelShape shape;
  Limits limits;
  Indptr qo, kv;
  std::int64_t window_left;
  Planned plan() const {
    return Planned(shape, limits,
                   {.requests = limits.max_requests,
                    .qo_indptr = qo.data(),
                    .kv_indptr = kv.data(),
                    .window_left = window_left});
  }
};

/// A batch of an engine's size: up to 20000 tokens, up to 96 heads.
TeamBatch draw_batch(std::mt19937_64& random) {
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  TeamBatch out{.shape = kDecode, .limits = {}, .qo = {0}, .kv = {0}, .window_left = -1};
  out.shape.tile_kv = 16 << draw(0, 3), out.shape.tile_cost = draw(0, 2),
  out.shape.min_kv_blocks = draw(1, 4);
  out.shape.group = out.shape.tile_rows = draw(1, 8);
  out.limits.max_requests = draw(1, 24);
  for (std::int64_t i = 0; i < out.limits.max_requests; ++i) {
    const std::int64_t longest = draw(0, 2) == 0 ? 20000 : 500;
    out.qo.push_back(out.qo.back() + static_cast<std::int32_t>(draw(0, 4) > 0 ? 1 : draw(0, 5)));
    out.kv.push_back(out.kv.back() + static_cast<std::int32_t>(draw(0, 4) > 0 ? draw(0, longest) : 0));
  }
  out.limits.max_tokens = std::max(1, out.qo.back());
  out.limits.kv_heads = draw(0, 1) == 0 ? draw(1, 96) : std::int64_t{1} << draw(0, 6);
  out.limits.workers = draw(1, 600);
  if (draw(0, 1) == 0) out.window_left = draw(0, 1) == 0 ? draw(0, 200) : draw(0, 20000);
  return out;
}

class AttentionTeamsOf : public ::testing::TestWithParam<unsigned> {
 protected:
  template <class Check>
  void each(Check&& check) {
    std::mt19937_64 random(GetParam());
    for (int i = 0; i < 40; ++i) {
      const TeamBatch batch = draw_batch(random);
      check(batch, batch.plan());
      if (HasFatalFailure()) {
        ADD_FAILURE() << "batch " << i;
        return;
      }
    }
  }
};

TEST_P(AttentionTeamsOf, HaveEachTokenOfEachHeadOnce) {
  each([](const TeamBatch& batch, const Planned& plan) {
    std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::vector<PlannedItem>> tiles;
    for (std::int64_t w = 0; w < batch.limits.workers; ++w)
      for (const PlannedItem& item : plan.items_of(w))
        tiles[{item.request, item.kv_head, item.first_row}].push_back(item);
    for (std::int32_t i = 0; i < batch.limits.max_requests; ++i) {
      const Request r = plan.request(i);
      for (std::int32_t token = 0; token < r.qo_len; ++token) {
        // A row sees one run of tokens.
        std::int32_t first = 0, end = r.kv_len;
        const auto seen = [&](std::int32_t j) {
          return sees(batch.shape, batch.window_left, -1, r, token, j);
        };
        while (end > 0 && !seen(end - 1)) --end;
        while (first < end && !seen(first)) ++first;
        for (std::int32_t head = 0; head < batch.limits.kv_heads; ++head) {
          const auto row = static_cast<std::int32_t>(token * batch.shape.group);
          const auto tile = tiles.extract({i, head, row});
          ASSERT_FALSE(tile.empty()) << "request " << i << " token " << token << " head " << head;
          const auto& items = tile.mapped();
          const auto begin =
              first < end ? first - first % static_cast<std::int32_t>(batch.shape.tile_kv) : first;
          ASSERT_EQ(items.back().kv_end - items.front().kv_begin, end - begin);
          ASSERT_TRUE(first == end || items.front().kv_begin == begin);
          for (std::size_t k = 0; k < items.size(); ++k) {
            ASSERT_EQ(items[k].part, static_cast<std::int32_t>(k));
            ASSERT_EQ(items[k].parts, static_cast<std::int32_t>(items.size()));
            ASSERT_TRUE(k == 0 || items[k].kv_begin == items[k - 1].kv_end);
            ASSERT_TRUE(items.size() == 1 || items[k].kv_begin < items[k].kv_end);
          }
        }
      }
    }
    ASSERT_TRUE(tiles.empty()) << "a tile that is none";
  });
}

TEST_P(AttentionTeamsOf, AreAlikeButForTheHeadAndItsSlots) {
  each([](const TeamBatch& batch, const Planned& plan) {
    const std::int64_t team = team_of(batch.shape, batch.limits);
    for (std::int64_t w = 0; w < batch.limits.workers; ++w) {
      const std::int64_t j = w % team;
      auto first = plan.items_of(w - j);
      if (w - j + team > batch.limits.workers) {
        ASSERT_TRUE(plan.items_of(w).empty()) << "worker " << w << " is of no team";
        continue;
      }
      for (PlannedItem& item : first) {
        ASSERT_EQ(item.kv_head % team, 0);
        item.kv_head += static_cast<std::int32_t>(j);
        if (item.parts > 1) item.first_slot += item.parts * static_cast<std::int32_t>(j);
      }
      ASSERT_EQ(plan.items_of(w), first) << "worker " << w;
      ASSERT_TRUE(first.empty() || plan.first_item(w) == first[0]) << "worker " << w;
    }
  });
}

TEST_P(AttentionTeamsOf, HaveSlotsAndCountersOfTheirOwn) {
  each([](const TeamBatch& batch, const Planned& plan) {
    std::set<std::int32_t> slots, first_slots, counters;
    for (const PlannedItem& item : plan.items()) {
      if (item.parts == 1) continue;
      ASSERT_TRUE(slots.insert(item.first_slot + item.part).second);
      ASSERT_TRUE(!first_slots.insert(item.first_slot).second || counters.insert(item.first_slot / 2).second);
    }
    ASSERT_EQ(std::ssize(slots), plan.summary.slots);
    ASSERT_TRUE(slots.empty() || (*slots.begin() == 0 && *slots.rbegin() < 2 * batch.limits.workers));
    ASSERT_TRUE(slots.empty() || *counters.rbegin() < batch.limits.workers);
  });
}

/// With teams, the plan is that of single workers with one head for each team's heads: the same
/// line with the same cuts.
TEST_P(AttentionTeamsOf, ShareTheLineAsSingleWorkersDo) {
  each([](const TeamBatch& batch, const Planned& plan) {
    const std::int64_t team = team_of(batch.shape, batch.limits);
    TeamBatch single = batch;
    single.shape.heads_together = false;
    single.limits.kv_heads /= team, single.limits.workers /= team;
    const Planned of_teams = single.plan();
    ASSERT_EQ(plan.summary.cost, of_teams.summary.cost * team);
    ASSERT_EQ(plan.summary.workers, of_teams.summary.workers * team);
    ASSERT_EQ(plan.summary.slots, of_teams.summary.slots * team);
    for (std::int64_t w = 0; w < single.limits.workers; ++w) {
      auto items = of_teams.items_of(w);
      for (PlannedItem& item : items) {
        item.kv_head *= static_cast<std::int32_t>(team);
        if (item.parts > 1) item.first_slot *= static_cast<std::int32_t>(team);
      }
      ASSERT_EQ(plan.items_of(w * team), items) << "team " << w;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Random, AttentionTeamsOf, ::testing::Range(1u, 6u));

/// FNV-1a of a plan's words without first items and the number of busy workers, which
/// older plans did not have.
std::uint64_t digest(const KernelShape& shape, std::int64_t kv_heads, std::int64_t workers,
                     std::int64_t window_left) {
  std::uint32_t state = 7;  // our own generator, as distributions of standard libraries differ
  const auto draw = [&](std::uint32_t most) {
    state = state * 1664525 + 1013904223;
    return static_cast<std::int32_t>((state >> 8) % (most + 1));
  };
  std::uint64_t out = 0xcbf29ce484222325;
  for (int n = 0; n < 20; ++n) {
    Indptr qo{0}, kv{0};
    for (int i = 0; i < 30; ++i)
      qo.push_back(qo.back() + draw(300)), kv.push_back(kv.back() + draw(i % 3 == 0 ? 20000 : 500));
    const Limits limits{
        .max_requests = 30, .max_tokens = qo.back(), .kv_heads = kv_heads, .workers = workers};
    const Planned plan(
        shape, limits,
        {.requests = 30, .qo_indptr = qo.data(), .kv_indptr = kv.data(), .window_left = window_left});
    const std::int64_t first_items = 16 + 2 * plan.table(), more = 12 * workers;
    for (std::int64_t i = 0; i < plan.summary.words; ++i) {
      if (i >= first_items && i < first_items + more) continue;
      std::int64_t word = i == 6 ? plan.summary.items : plan.word(i);  // older plans had their number here
      if (i == 8) word -= more;                                        // the place of the requests
      if (i == 9) word = 0;                                            // the number of busy workers
      out = (out ^ static_cast<std::uint32_t>(word)) * 0x100000001b3;
    }
  }
  return out;
}

TEST(AttentionTeams, OfOneWorkerAreTheWorkersThatWere) {
  const KernelShape seen{.tile_rows = 128,
                         .tile_kv = 64,
                         .group = 4,
                         .causal = true,
                         .window = true,
                         .tile_cost = 0,  // a cut costs nothing, so no cut is avoided
                         .min_kv_blocks = 1};
  EXPECT_EQ(digest(seen, 8, 264, -1), 0x2d7e2864c451f0acu);
  EXPECT_EQ(digest(seen, 3, 132, 700), 0x2cf19419dff27a5cu);
  KernelShape all = seen;
  all.causal = all.window = false, all.tile_rows = 64;
  EXPECT_EQ(digest(all, 1, 600, -1), 0xf6db05bb51a958a5u);
  all.heads_together = true;
  EXPECT_EQ(digest(all, 7, 6, -1), 0x25be5e93a95bdac5u) << "7 heads are too many for 6 workers";
}

}  // namespace
}  // namespace kiln::attention::test

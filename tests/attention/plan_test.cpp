// Plans of batches that can be worked out by hand.
#include <set>
#include <string>
#include <tuple>

#include "attention/fixture.hpp"
#include "attention/layout.hpp"
#include "kiln/error.hpp"

namespace kiln::attention::test {
namespace {

using Indptr = std::vector<std::int32_t>;

TEST(AttentionPlan, ATileIsOneRequestOneHeadAndItsRows) {
  const KernelShape shape{.tile_rows = 8, .tile_kv = 4, .group = 2, .tile_cost = 0, .min_kv_blocks = 1};
  const Indptr qo{0, 5, 5, 7}, kv{10, 19, 20, 32};
  const Planned plan(shape, {.max_requests = 4, .max_tokens = 9, .kv_heads = 2, .workers = 1},
                     {.requests = 3, .qo_indptr = qo.data(), .kv_indptr = kv.data()});
  // 5 tokens are 10 rows, which are two tiles. 2 tokens are 4 rows. A request without tokens has no tile.
  const std::vector<PlannedItem> expected = {
      {0, 0, 0, 0, 5, 9, 10, 0, 9, -1, 0, 1},   {0, 0, 8, 0, 5, 9, 10, 0, 9, -1, 0, 1},
      {0, 1, 0, 0, 5, 9, 10, 0, 9, -1, 0, 1},   {0, 1, 8, 0, 5, 9, 10, 0, 9, -1, 0, 1},
      {2, 0, 0, 5, 2, 12, 20, 0, 12, -1, 0, 1}, {2, 1, 0, 5, 2, 12, 20, 0, 12, -1, 0, 1}};
  EXPECT_EQ(plan.items(), expected);
  EXPECT_EQ(plan.summary.cost, 4 * 3 + 2 * 3);
  EXPECT_EQ(plan.request(1).qo_len, 0);
  EXPECT_EQ(plan.request(1).kv_len, 1);
  EXPECT_EQ(plan.request(2).kv_base, 20);
}

TEST(AttentionPlan, CausalLeavesToATileWhatItsLastRowSees) {
  const KernelShape shape{.tile_rows = 4, .tile_kv = 4, .group = 1, .causal = true};
  const Indptr qo{0, 10}, kv{0, 13};
  const Planned plan(shape, {.max_requests = 1, .max_tokens = 10, .kv_heads = 1, .workers = 1},
                     {.requests = 1, .qo_indptr = qo.data(), .kv_indptr = kv.data()});
  ASSERT_EQ(plan.summary.items, 3);
  EXPECT_EQ(plan.item(0).kv_end, 7);  // token 3 sees up to 3 + 13 - 10
  EXPECT_EQ(plan.item(1).kv_end, 11);
  EXPECT_EQ(plan.item(2).kv_end, 13);
}

TEST(AttentionPlan, RowsBeforeTheFirstKvTokenHaveAnEmptyTileThatIsWritten) {
  const KernelShape shape{.tile_rows = 4, .tile_kv = 4, .group = 1, .causal = true};
  const Indptr qo{0, 10}, kv{0, 3};
  const Planned plan(shape, {.max_requests = 1, .max_tokens = 10, .kv_heads = 1, .workers = 8},
                     {.requests = 1, .qo_indptr = qo.data(), .kv_indptr = kv.data()});
  ASSERT_EQ(plan.summary.items, 3);
  EXPECT_EQ(plan.item(0).kv_begin, 0);
  EXPECT_EQ(plan.item(0).kv_end, 0);
  EXPECT_EQ(plan.item(0).parts, 1);
  EXPECT_EQ(plan.item(1).kv_end, 1);
  EXPECT_EQ(plan.item(2).kv_end, 3);
}

TEST(AttentionPlan, AWindowBeginsWithTheBlockOfTheFirstTokenThatIsSeen) {
  const KernelShape shape{.tile_rows = 4, .tile_kv = 4, .group = 1, .causal = true, .window = true};
  const Indptr qo{0, 8}, kv{0, 32};
  const Limits limits{.max_requests = 1, .max_tokens = 8, .kv_heads = 1, .workers = 1};
  Lengths lengths{.requests = 1, .qo_indptr = qo.data(), .kv_indptr = kv.data(), .window_left = 6};
  const Planned plan(shape, limits, lengths);
  EXPECT_EQ(plan.item(0).kv_begin, 16);  // token 0 has place 24, and sees from 18 on
  EXPECT_EQ(plan.item(0).kv_end, 28);
  EXPECT_EQ(plan.item(1).kv_begin, 20);  // token 4 sees from 22 on
  lengths.window_left = -1;
  EXPECT_EQ(Planned(shape, limits, lengths).item(1).kv_begin, 0);
}

TEST(AttentionPlan, ARightWindowEndsWithTheLastTokenThatIsSeen) {
  KernelShape shape{.tile_rows = 4, .tile_kv = 4, .group = 1, .window = true};
  const Indptr qo{0, 8}, kv{0, 32};
  const Limits limits{.max_requests = 1, .max_tokens = 8, .kv_heads = 1, .workers = 1};
  Lengths lengths{.requests = 1, .qo_indptr = qo.data(), .kv_indptr = kv.data(), .window_right = 2};
  const Planned right(shape, limits, lengths);
  EXPECT_EQ(right.item(0).kv_begin, 0);
  EXPECT_EQ(right.item(0).kv_end, 30);  // token 3 has place 27, and sees up to 29
  EXPECT_EQ(right.item(1).kv_end, 32);
  lengths.window_left = 6;
  EXPECT_EQ(Planned(shape, limits, lengths).item(0).kv_begin, 16);
  lengths.window_left = -1, lengths.window_right = 0;
  const Planned none(shape, limits, lengths);
  shape.causal = true;
  for (const std::int64_t same : {-1, 0}) {  // causal is a right window of 0
    lengths.window_right = same;
    const Planned causal(shape, limits, lengths);
    EXPECT_EQ(causal.items(), none.items());
    EXPECT_EQ(causal.word(0), made_for(4, 4, 1, true));
    EXPECT_EQ(causal.word(6), -1);
  }
}

TEST(AttentionPlan, ARightWindowOfOneTokenLeavesARowBeforeTheFirstKvTokenOne) {
  const KernelShape shape{.tile_rows = 4, .tile_kv = 4, .group = 1, .window = true};
  const Indptr qo{0, 10}, kv{0, 3};
  const Planned plan(shape, {.max_requests = 1, .max_tokens = 10, .kv_heads = 1, .workers = 8},
                     {.requests = 1, .qo_indptr = qo.data(), .kv_indptr = kv.data(), .window_right = 1});
  ASSERT_EQ(plan.summary.items, 3);
  EXPECT_EQ(plan.item(0).kv_end, 0);  // token 3 has place -4
  EXPECT_EQ(plan.item(1).kv_end, 2);  // token 7 has place 0
  EXPECT_EQ(plan.item(2).kv_end, 3);
}

TEST(AttentionPlan, ARightWindowIsAPartOfTheWordOfItsKernel) {
  const KernelShape shape{.tile_rows = 4, .tile_kv = 4, .group = 1, .window = true};
  const Indptr qo{0, 8}, kv{0, 32};
  const Limits limits{.max_requests = 1, .max_tokens = 8, .kv_heads = 1, .workers = 1};
  std::set<std::int32_t> words;
  for (const std::int64_t right : {-1, 0, 1, 2, 0x7fffffff}) {
    const Planned plan(
        shape, limits,
        {.requests = 1, .qo_indptr = qo.data(), .kv_indptr = kv.data(), .window_right = right});
    EXPECT_EQ(plan.word(6), right);
    EXPECT_EQ(plan.word(0), made_for(4, 4, 1, false, false, right));
    words.insert(plan.word(0));
  }
  EXPECT_EQ(words.size(), 5u);
  EXPECT_EQ(made_for(4, 4, 1, false), made_for(4, 4, 1, false, false, -1));
}

TEST(AttentionPlan, OneLongTileIsSharedEqually) {
  const KernelShape shape{.tile_rows = 8, .tile_kv = 64, .group = 8, .tile_cost = 0, .min_kv_blocks = 2};
  const Indptr kv{0, 64 * 40};
  const Planned plan(shape, {.max_requests = 1, .max_tokens = 1, .kv_heads = 1, .workers = 10},
                     {.requests = 1, .kv_indptr = kv.data()});
  ASSERT_EQ(plan.summary.items, 10);
  EXPECT_EQ(plan.summary.slots, 10);
  for (std::int32_t w = 0; w < 10; ++w) {
    const auto items = plan.items_of(w);
    ASSERT_EQ(items.size(), 1u);
    EXPECT_EQ(items[0], (PlannedItem{0, 0, 0, 0, 1, 2560, 0, 256 * w, 256 * (w + 1), 0, w, 10}));
  }
}

TEST(AttentionPlan, ShortBatchesUseFewerWorkers) {
  const KernelShape shape{.tile_rows = 8, .tile_kv = 64, .group = 8, .tile_cost = 1, .min_kv_blocks = 4};
  const Indptr kv{0, 64 * 12};
  const Planned plan(shape, {.max_requests = 1, .max_tokens = 1, .kv_heads = 1, .workers = 100},
                     {.requests = 1, .kv_indptr = kv.data()});
  EXPECT_EQ(plan.summary.workers, 2);
  EXPECT_EQ(plan.items_of(0).size(), 1u);
  EXPECT_EQ(plan.items_of(1).size(), 1u);
  for (std::int64_t w = 2; w < 100; ++w) EXPECT_TRUE(plan.items_of(w).empty()) << w;
  EXPECT_EQ(plan.begin(100), 2);
}

TEST(AttentionPlan, ASliverGoesToTheOtherSideOfTheCut) {
  const KernelShape shape{.tile_rows = 1, .tile_kv = 1, .group = 1, .tile_cost = 0, .min_kv_blocks = 3};
  // Tiles of 10 and 14 units: half of the line is 12, which is two units into the second tile.
  const Indptr kv{0, 10, 24};
  const Planned plan(shape, {.max_requests = 2, .max_tokens = 2, .kv_heads = 1, .workers = 2},
                     {.requests = 2, .kv_indptr = kv.data()});
  EXPECT_EQ(plan.summary.slots, 0);
  EXPECT_EQ(plan.begin(1), 1);
  const Indptr later{0, 9, 24};  // the cut is three units into the second tile
  const Planned split(shape, {.max_requests = 2, .max_tokens = 2, .kv_heads = 1, .workers = 2},
                      {.requests = 2, .kv_indptr = later.data()});
  EXPECT_EQ(split.summary.slots, 2);
  EXPECT_EQ(split.item(1).kv_end, 3);
}

/// The plan of attn_prefill for `requests` prompts of `tokens` tokens each, on a GPU of 132 SMs.
Planned prompts(std::int32_t requests, std::int32_t tokens, bool causal) {
  const KernelShape shape{.tile_rows = 128,
                          .tile_kv = 64,
                          .group = 4,
                          .causal = causal,
                          .tile_cost = 1,
                          .min_kv_blocks = 3,
                          .tiles_together = true};
  Indptr tokens_at{0};
  for (std::int32_t i = 1; i <= requests; ++i) tokens_at.push_back(i * tokens);
  return Planned(shape,
                 {.max_requests = requests,
                  .max_tokens = std::int64_t{requests} * tokens,
                  .kv_heads = 8,
                  .workers = 264},
                 {.requests = requests, .qo_indptr = tokens_at.data(), .kv_indptr = tokens_at.data()});
}

TEST(AttentionPlan, TilesAreNotCutWhereThatSavesLessThanTwoPartsCost) {
  // 512 tiles of 16 units. 256 workers get two tiles each and the others nothing. With 1.94 tiles for each of
  // 264 workers nearly all would be cut.
  const Planned two = prompts(2, 1024, false);
  EXPECT_EQ(two.summary.slots, 0);
  EXPECT_EQ(two.summary.workers, 256);
  for (std::int64_t w = 0; w < 264; ++w) EXPECT_EQ(two.items_of(w).size(), w < 256 ? 2u : 0u) << w;
  // 1024 tiles of 64 units are 3.88 for each worker. Four whole tiles would be 8
  // units more, so tiles are cut.
  const Planned long_ones = prompts(1, 4096, false);
  EXPECT_GT(long_ones.summary.slots, 264);
  EXPECT_EQ(long_ones.summary.workers, 264);
}

TEST(AttentionPlan, TilesThatAreFewAreOneForEachWorker) {
  for (const auto& [tokens, tiles] : {std::pair(1, 8), {128, 32}, {512, 128}, {1000, 256}}) {
    const Planned plan = prompts(1, tokens, false);
    EXPECT_EQ(plan.summary.slots, 0) << tokens;
    EXPECT_EQ(plan.summary.workers, tiles) << tokens;
    for (std::int64_t w = 0; w < 264; ++w) EXPECT_EQ(plan.items_of(w).size(), w < tiles ? 1u : 0u) << w;
  }
  EXPECT_EQ(prompts(1, 128, true).summary.workers, 32) << "of 1 and 2 units";
  EXPECT_GT(prompts(1, 1024, true).summary.slots, 0) << "of 1 to 16 units, and 8 are there for each worker";
}

TEST(AttentionPlan, NothingToDoIsAPlanWithoutItems) {
  const KernelShape shape{.tile_rows = 8, .tile_kv = 64, .group = 8};
  const Limits limits{.max_requests = 3, .max_tokens = 3, .kv_heads = 2, .workers = 5};
  const Planned none(shape, limits, {});
  EXPECT_EQ(none.summary.items, 0);
  EXPECT_EQ(none.word(4), 0);
  const Indptr empty{4, 4, 4}, kv{0, 7, 9};
  const Planned no_tokens(shape, limits, {.requests = 2, .qo_indptr = empty.data(), .kv_indptr = kv.data()});
  EXPECT_EQ(no_tokens.summary.items, 0);
  EXPECT_EQ(no_tokens.word(4), 2);
  for (std::int64_t w = 0; w <= 5; ++w) EXPECT_EQ(no_tokens.begin(w), 0);
}

TEST(AttentionPlan, LengthsAsLargeAsTheyCanBeDoNotOverflow) {
  const KernelShape shape{.tile_rows = 1, .tile_kv = 1, .group = 1, .tile_cost = 0, .min_kv_blocks = 1};
  constexpr std::int32_t most = (1 << 30) - 1;
  const Indptr kv{0, most}, qo{0, 3};
  const Planned plan(shape, {.max_requests = 1, .max_tokens = 3, .kv_heads = 65536, .workers = kMaxWorkers},
                     {.requests = 1, .qo_indptr = qo.data(), .kv_indptr = kv.data()});
  EXPECT_EQ(plan.summary.cost, 3ll * 65536 * most);
  std::int64_t before = 0, tokens = 0;
  for (std::int64_t w = 0; w < kMaxWorkers; ++w) {
    EXPECT_GE(plan.begin(w), before);
    before = plan.begin(w);
  }
  for (const PlannedItem& item : plan.items()) tokens += item.kv_end - item.kv_begin;
  EXPECT_EQ(tokens, plan.summary.cost);
}

TEST(AttentionPlan, WholeTilesOfARequestAndHeadAreOneItemWhereTheyAreTogether) {
  const KernelShape shape{.tile_rows = 4,
                          .tile_kv = 4,
                          .group = 2,
                          .causal = true,
                          .tile_cost = 0,
                          .min_kv_blocks = 1,
                          .tiles_together = true};
  const Indptr qo{0, 7, 7, 9}, kv{0, 8, 9, 19};
  const Limits limits{.max_requests = 3, .max_tokens = 9, .kv_heads = 2, .workers = 1};
  const Lengths lengths{.requests = 3, .qo_indptr = qo.data(), .kv_indptr = kv.data()};
  const Planned plan(shape, limits, lengths);
  // 7 tokens are four tiles, with 3, 5, 7 and 8 tokens of kv.
  ASSERT_EQ(plan.summary.items, 4);
  EXPECT_EQ(plan.item(0), (PlannedItem{0, 0, 0, 0, 7, 8, 0, 0, 3, -4, 0, 1}));
  EXPECT_EQ(plan.item(1), (PlannedItem{0, 1, 0, 0, 7, 8, 0, 0, 3, -4, 0, 1}));
  EXPECT_EQ(plan.item(2), (PlannedItem{2, 0, 0, 7, 2, 10, 9, 0, 10, -1, 0, 1}));
  ASSERT_EQ(plan.items().size(), 10u);
  EXPECT_EQ(plan.items()[2], (PlannedItem{0, 0, 8, 0, 7, 8, 0, 0, 7, -1, 0, 1}));
  EXPECT_EQ(plan.items()[3], (PlannedItem{0, 0, 12, 0, 7, 8, 0, 0, 8, -1, 0, 1}));
  // Half of the line is 10 of 20 units, in the middle of the second head's first tiles.
  Limits two = limits;
  two.workers = 2;
  const Planned shared(shape, two, lengths);
  EXPECT_EQ(shared.items_of(0).size() + shared.items_of(1).size() - 10,
            static_cast<std::size_t>(shared.summary.slots) / 2);
  EXPECT_LE(shared.summary.items, 4 + 3);
}

TEST(AttentionPlan, MoreTilesThanALineHasRoomForAreRefused) {
  const KernelShape shape{.tile_rows = 64, .tile_kv = 32, .group = 1, .tile_cost = 2, .tiles_together = true};
  const auto words = [&](std::int64_t kv_heads) {
    return work_list_words(
        shape, {.max_requests = 2, .max_tokens = 0x7fffffff - 64, .kv_heads = kv_heads, .workers = 132});
  };
  EXPECT_LT(words(63), 10000);
  try {
    words(64);
    ADD_FAILURE() << "2^31 tiles";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("kv_heads = 64 make 2147483648 tiles; at most 2^31 - 1"),
              std::string::npos)
        << error.what();
  }
}

TEST(AttentionPlan, TilesOfTheLongestRequestsDoNotOverflow) {
  const KernelShape shape{.tile_rows = 65536,
                          .tile_kv = 65536,
                          .group = 1,
                          .causal = true,
                          .window = true,
                          .tiles_together = true};
  constexpr std::int32_t most = (1 << 30) - 1;
  const Limits limits{.max_requests = 1, .max_tokens = most, .kv_heads = 1, .workers = 3};
  for (const auto& [qo_len, kv_len, window] :
       {std::tuple(most, most, 0x7fffffff), {most, 1, 0x7fffffff}, {most, most, 0}, {most, 1, 0}}) {
    const Indptr qo{0, qo_len}, kv{0, kv_len};
    const Planned plan(
        shape, limits,
        {.requests = 1, .qo_indptr = qo.data(), .kv_indptr = kv.data(), .window_left = window});
    const auto tiles = plan.items();
    EXPECT_EQ(tiles.back().first_row, most / 65536 * 65536);
    EXPECT_EQ(tiles.back().kv_end, kv_len);
    std::int64_t units = 0;
    for (const PlannedItem& tile : tiles) {
      ASSERT_TRUE(0 <= tile.kv_begin && tile.kv_begin <= tile.kv_end && tile.kv_end <= kv_len);
      units += kv_blocks_of(shape, tile) + (tile.part == 0 ? shape.tile_cost : 0);
    }
    EXPECT_EQ(units, plan.summary.cost);
  }
}

}  // namespace
}  // namespace kiln::attention::test

// The lengths that engines give: pages, padded rows, and lengths that are refused.
#include "attention/fixture.hpp"
#include "support/expect_error.hpp"

namespace kiln::attention::test {
namespace {

using Array = std::vector<std::int32_t>;

const KernelShape kShape{.tile_rows = 8, .tile_kv = 4, .group = 2};
const Limits kLimits{.max_requests = 4, .max_tokens = 16, .kv_heads = 2, .workers = 3};

void refused(std::initializer_list<std::string> pieces, const Lengths& lengths,
             const KernelShape& shape = kShape) {
  std::vector<std::int32_t> buffer(static_cast<std::size_t>(work_list_words(shape, kLimits)),
                                   Planned::kUntouched);
  expect_error(Errc::invalid_argument, pieces, [&] { write_work_list(shape, kLimits, lengths, buffer); });
  for (const std::int32_t word : buffer) ASSERT_EQ(word, Planned::kUntouched) << "nothing is written";
}

TEST(AttentionLengths, PagesAndTheLastPagesLength) {
  const Array pages{3, 5, 5, 6}, last{2, 9, 16};  // a request without pages has no last page
  const Planned plan(
      kShape, kLimits,
      {.requests = 3, .kv_indptr = pages.data(), .last_page_len = last.data(), .page_size = 16});
  EXPECT_EQ(plan.request(0).kv_len, 18);
  EXPECT_EQ(plan.request(0).kv_base, 3);
  EXPECT_EQ(plan.request(1).kv_len, 0);
  EXPECT_EQ(plan.request(2).kv_len, 16);
  EXPECT_EQ(plan.request(2).qo_begin, 2);
  EXPECT_EQ(plan.request(2).qo_len, 1);
}

TEST(AttentionLengths, KvLenStandsForLastPageLenAndForPaddedRows) {
  const Array begin{0, 2, 4}, lengths{17, 0};
  const Planned paged(kShape, kLimits,
                      {.requests = 2, .kv_indptr = begin.data(), .kv_len = lengths.data(), .page_size = 16});
  EXPECT_EQ(paged.request(0).kv_len, 17);
  EXPECT_EQ(paged.request(1).kv_len, 0);
  const Array rows{0, 100, 200}, used{17, 100};
  const Planned padded(kShape, kLimits, {.requests = 2, .kv_indptr = rows.data(), .kv_len = used.data()});
  EXPECT_EQ(padded.request(0).kv_len, 17);
  EXPECT_EQ(padded.request(1).kv_base, 100);
}

TEST(AttentionLengths, WhatShrinksOrIsNegativeIsRefusedByItsEntry) {
  const Array good{0, 3, 5}, shrinks{0, 3, 2}, negative{-1, 3, 5};
  refused({"qo_indptr[2] = 2 is below qo_indptr[1] = 3"},
          {.requests = 2, .qo_indptr = shrinks.data(), .kv_indptr = good.data()});
  refused({"kv_indptr[2] = 2 is below kv_indptr[1] = 3"},
          {.requests = 2, .qo_indptr = good.data(), .kv_indptr = shrinks.data()});
  refused({"qo_indptr[0] = -1 must not be negative"},
          {.requests = 2, .qo_indptr = negative.data(), .kv_indptr = good.data()});
  refused({"kv_len[1] = 3 must be 0 to 2"},
          {.requests = 2, .kv_indptr = good.data(), .kv_len = Array{1, 3}.data()});
  refused({"kv_len[0] = -1 must be 0 to 3"},
          {.requests = 2, .kv_indptr = good.data(), .kv_len = Array{-1, 3}.data()});
}

TEST(AttentionLengths, PagesThatDoNotHoldTheTokensAreRefused) {
  const Array pages{0, 2, 3};
  Lengths lengths{.requests = 2, .kv_indptr = pages.data(), .page_size = 16};
  refused({"last_page_len is null, and so is kv_len"}, lengths);
  const Array none{1, 0}, many{17, 1}, long_ones{16, 17};
  lengths.last_page_len = none.data();
  refused({"last_page_len[1] = 0 must be 1 to page_size = 16"}, lengths);
  lengths.last_page_len = many.data();
  refused({"last_page_len[0] = 17 must be 1 to page_size = 16"}, lengths);
  lengths.kv_len = long_ones.data();
  refused({"kv_len[1] = 17 must be 0 to 16, what its 1 pages hold"}, lengths);
  const Array huge{0, 0x7fffffff}, one{1};
  refused({"request 0 has 4294967293 tokens of kv", "at most 2^30 - 1"},
          {.requests = 1, .kv_indptr = huge.data(), .last_page_len = one.data(), .page_size = 2});
  const Array large{0, 1 << 30};
  refused({"request 0 has 1073741824 tokens of kv"}, {.requests = 1, .kv_indptr = large.data()});
}

TEST(AttentionLengths, WhatPassesTheLimitsIsRefused) {
  const Array five{0, 1, 2, 3, 4, 5}, long_one{0, 17};
  refused({"requests = 5 must be 0 to max_requests = 4"}, {.requests = 5, .kv_indptr = five.data()});
  refused({"requests = -1"}, {.requests = -1, .kv_indptr = five.data()});
  refused({"17 tokens of q", "max_tokens = 16"},
          {.requests = 1, .qo_indptr = long_one.data(), .kv_indptr = long_one.data()});
  refused({"kv_indptr is null"}, {.requests = 1});
  refused({"page_size = -1"}, {.requests = 1, .kv_indptr = five.data(), .page_size = -1});
}

TEST(AttentionLengths, AWindowThatTheKernelDoesNotHaveIsRefused) {
  const Array kv{0, 1};
  refused({"window_left = 0, and the kernel was specialised without a window"},
          {.requests = 1, .kv_indptr = kv.data(), .window_left = 0});
  KernelShape windowed = kShape;
  windowed.window = true;
  refused({"window_left = -2 must be -1 (off) or more"},
          {.requests = 1, .kv_indptr = kv.data(), .window_left = -2}, windowed);
  refused({"window_right = 0, and the kernel was specialised without a window; -1 is off"},
          {.requests = 1, .kv_indptr = kv.data(), .window_right = 0});
  refused({"window_right = -2 must be -1 (off) or more"},
          {.requests = 1, .kv_indptr = kv.data(), .window_right = -2}, windowed);
  windowed.causal = true;
  refused({"window_right = 1, and the kernel was specialised as causal, which is a right window of 0"},
          {.requests = 1, .kv_indptr = kv.data(), .window_right = 1}, windowed);
}

TEST(AttentionLimits, AreCheckedByName) {
  const auto refuse = [](const char* what, KernelShape shape, Limits limits) {
    expect_error(Errc::invalid_argument, {what}, [&] { work_list_words(shape, limits); });
  };
  Limits limits = kLimits;
  limits.workers = 0;
  refuse("workers = 0 must be 1 to 65535", kShape, limits);
  limits = kLimits, limits.max_requests = 0;
  refuse("max_requests = 0", kShape, limits);
  limits = kLimits, limits.kv_heads = -1;
  refuse("kv_heads = -1", kShape, limits);
  limits = kLimits, limits.max_tokens = 0x7fffffff;
  refuse("max_tokens = 2147483647 must be 1 to 1073741819", kShape, limits);
  limits = kLimits, limits.max_tokens = 1'000'000'000;
  refuse("words; at most 2^31 - 1", kShape, limits);
  KernelShape shape = kShape;
  shape.tile_kv = 0;
  refuse("tile_kv = 0", shape, kLimits);
}

TEST(AttentionLimits, ABufferThatIsTooSmallIsRefusedInBytes) {
  std::vector<std::int32_t> buffer(static_cast<std::size_t>(work_list_words(kShape, kLimits)) - 1);
  const Array kv{0, 1};
  expect_error(Errc::invalid_argument,
               {"the buffer has " + std::to_string(4 * buffer.size()) + " bytes",
                "need " + std::to_string(4 * buffer.size() + 4)},
               [&] { write_work_list(kShape, kLimits, {.requests = 1, .kv_indptr = kv.data()}, buffer); });
}

}  // namespace
}  // namespace kiln::attention::test

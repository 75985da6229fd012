// Work lists that the device writes, compared word by word with the lists of the host, for random batches.
#include "attention/device_writer.hpp"

#include <numeric>

#include "attention/layout.hpp"

namespace kiln::attention::test {
namespace {

/// A batch with arrays of its own.
struct LengthsOnDevice {
  KernelShape shape;
  Limits limits;
  std::vector<std::int32_t> qo, kv, kv_len, last;
  std::int64_t page_size = 0, window_left = -1, window_right = -1;

  Lengths lengths() const {
    const auto given = [](const std::vector<std::int32_t>& of) { return of.empty() ? nullptr : of.data(); };
    return {.requests = static_cast<std::int64_t>(kv.size()) - 1,
            .qo_indptr = given(qo),
            .kv_indptr = kv.data(),
            .kv_len = given(kv_len),
            .last_page_len = given(last),
            .page_size = page_size,
            .window_left = window_left,
            .window_right = window_right};
  }
};

class DrawLengths : public Draws {
 public:
  using Draws::Draws;
  std::vector<std::int32_t> indptr(std::int64_t requests, std::int64_t most) {
    std::vector<std::int32_t> out{narrow((*this)(0, 5))};
    const bool equal = one_in(4);
    for (std::int64_t i = 0; i < requests; ++i) {
      const std::int64_t length = equal       ? most
                                  : one_in(5) ? 0
                                  : one_in(4) ? 1
                                  : one_in(4) ? most
                                              : (*this)(1, most);
      out.push_back(out.back() + narrow(length));
    }
    return out;
  }

  KernelShape shape() {
    KernelShape out{.tile_rows = of({1, 3, 8, 16, 128, 300}),
                    .tile_kv = of({1, 2, 7, 16, 64, 128}),
                    .group = of({1, 2, 4, 7, 16, 300}),
                    .causal = !one_in(3),
                    .window = one_in(2),
                    .tile_cost = (*this)(0, 3),
                    .min_kv_blocks = (*this)(1, 5)};
    out.heads_together = one_in(2), out.tiles_together = one_in(2);
    return out;
  }

  /// A batch in which each request has at most one tile of a kv head.
  LengthsOnDevice batch_of_one_tile() {
    LengthsOnDevice out = batch();
    if (out.qo.empty()) {
      out.shape.tile_rows = std::max(out.shape.tile_rows, out.shape.group);
    } else {
      std::int64_t most = 1;
      for (std::size_t i = 0; i + 1 < out.qo.size(); ++i)
        most = std::max<std::int64_t>(most, out.qo[i + 1] - out.qo[i]);
      out.shape.group = of({1, 2, 4, 7});
      out.shape.tile_rows = most * out.shape.group + (*this)(0, 3);
    }
    return out;
  }

  /// Lists of more than 2^18 words would take most of the time.
  LengthsOnDevice batch() {
    LengthsOnDevice out = any_batch();
    while (work_list_words(out.shape, out.limits) > 1 << 18) out = any_batch();
    return out;
  }

 private:
  LengthsOnDevice any_batch() {
    LengthsOnDevice out;
    out.shape = shape();
    const std::int64_t requests = one_in(20) ? 0 : one_in(4) ? (*this)(1, 300) : (*this)(1, 12);
    if (!one_in(3)) out.qo = indptr(requests, of({1, 4, 9, 70, 900}));
    out.kv = indptr(requests, of({1, 40, 300, 5000}));
    if (one_in(3)) {  // the arrays count pages
      out.page_size = of({1, 16, 64});
      for (std::int64_t i = 0; i < requests; ++i) out.last.push_back(narrow((*this)(1, out.page_size)));
    }
    if (one_in(3)) {
      for (std::size_t i = 0; i + 1 < out.kv.size(); ++i)
        out.kv_len.push_back(
            narrow((*this)(0, (out.kv[i + 1] - out.kv[i]) * std::max<std::int64_t>(out.page_size, 1))));
    }
    if (out.shape.window && !one_in(4)) out.window_left = of({0, 1, 5, 64, 1000});
    if (out.shape.window && !out.shape.causal && !one_in(3)) out.window_right = of({0, 1, 5, 64, 1000});
    const std::int64_t tokens = out.qo.empty() ? requests : out.qo.back() - out.qo.front();
    out.limits = {.max_requests = std::max<std::int64_t>(requests + (*this)(0, 3), 1),
                  .max_tokens = std::max<std::int64_t>(tokens, 1) + (*this)(0, 20),
                  .kv_heads = one_in(4) ? of({6, 8}) : (*this)(1, 3),
                  .workers = of({1, 2, 3, 7, 31, 132, 264}),
                  .on_device = true};
    return out;
  }
};

constexpr std::int32_t kUntouched = 0x7eadbeef;

/// A buffer with the empty list that a caller puts there once.
std::vector<std::int32_t> begun(const LengthsOnDevice& batch) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(work_list_words(batch.shape, batch.limits)) + 8,
                                kUntouched);
  write_work_list(batch.shape, batch.limits,
                  {.window_left = batch.window_left, .window_right = batch.window_right}, out);
  return out;
}

/// The words that the host writes, in a buffer like begun().
std::vector<std::int32_t> of_host(const LengthsOnDevice& batch) {
  std::vector<std::int32_t> out = begun(batch);
  write_work_list(batch.shape, batch.limits, batch.lengths(), out);
  return out;
}

class AttentionListOnDevice : public ::testing::TestWithParam<unsigned> {};

TEST_P(AttentionListOnDevice, IsTheHostsWordForWord) {
  DrawLengths draw(GetParam());
  for (int i = 0; i < 200; ++i) {
    const LengthsOnDevice batch = draw.batch();
    std::vector<std::int32_t> words = begun(batch);
    const DeviceResult result =
        write_on_device(words, batch.lengths(), static_cast<int>(batch.limits.workers));
    ASSERT_EQ(result.refusal, FAULT_NONE) << "batch " << i;
    ASSERT_EQ(words, of_host(batch)) << "batch " << i;
  }
}

TEST_P(AttentionListOnDevice, OfOneTileEachIsTheHostsFromBothWriters) {
  DrawLengths draw(GetParam() + 2000);
  for (int i = 0; i < 200; ++i) {
    const LengthsOnDevice batch = draw.batch_of_one_tile();
    const std::vector<std::int32_t> expected = of_host(batch);
    for (const bool any_writer : {true, false}) {
      std::vector<std::int32_t> words = begun(batch);
      const DeviceResult result =
          write_on_device(words, batch.lengths(), static_cast<int>(batch.limits.workers), 3, any_writer);
      ASSERT_EQ(result.refusal, FAULT_NONE) << "batch " << i;
      ASSERT_EQ(result.one_tile, any_writer) << "batch " << i;
      ASSERT_EQ(words, expected) << "batch " << i;
    }
  }
}

TEST_P(AttentionListOnDevice, IsTheHostsIfSomeBlocksHaveReadAnEarlierHeader) {
  DrawLengths draw(GetParam() + 3000);
  for (int i = 0; i < 50; ++i) {
    const LengthsOnDevice batch = i % 2 == 0 ? draw.batch() : draw.batch_of_one_tile();
    std::vector<std::int32_t> words = begun(batch);
    const int late = static_cast<int>(draw(1, 3));
    ASSERT_EQ(write_on_device(words, batch.lengths(), static_cast<int>(batch.limits.workers), 3, true, late)
                  .refusal,
              FAULT_NONE);
    ASSERT_EQ(words, of_host(batch)) << "batch " << i;
  }
}

TEST_P(AttentionListOnDevice, IsTheHostsAfterAnyOtherList) {
  DrawLengths draw(GetParam() + 1000);
  for (int i = 0; i < 50; ++i) {
    LengthsOnDevice batch = draw.batch();
    std::vector<std::int32_t> words = of_host(batch);
    const std::vector<std::int32_t> before = words;
    LengthsOnDevice shorter = batch;  // the same number of requests, as in a captured graph
    for (std::int32_t& end : shorter.qo) end = std::min(end, batch.qo.front() + 1);
    for (std::size_t j = 0; j < shorter.kv_len.size(); ++j) shorter.kv_len[j] /= 2;
    ASSERT_EQ(write_on_device(words, shorter.lengths(), static_cast<int>(batch.limits.workers)).refusal,
              FAULT_NONE);
    ASSERT_EQ(write_on_device(words, batch.lengths(), static_cast<int>(batch.limits.workers)).refusal,
              FAULT_NONE);
    // Words after the list keep what the shorter list wrote there.
    const std::int64_t used = before[8] + static_cast<std::int64_t>(batch.lengths().requests) * kRequestWords;
    for (std::int64_t w = 0; w < used; ++w) {
      const bool first_item = first_items_at(batch.limits.workers) <= w && w < items_at(batch.limits.workers);
      if (first_item) continue;  // of a worker without items it is undefined
      ASSERT_EQ(words[static_cast<std::size_t>(w)], before[static_cast<std::size_t>(w)]) << "word " << w;
    }
  }
}

/// Two requests of 3 and 5 tokens, and the list that the host has put into the buffer.
class AttentionListOfTheDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    batch_.shape = {.tile_rows = 8, .tile_kv = 16, .group = 2, .causal = true};
    batch_.qo = {0, 3, 8}, batch_.kv = {0, 30, 70};
    batch_.limits = {.max_requests = 2, .max_tokens = 8, .kv_heads = 2, .workers = 7, .on_device = true};
    words_ = begun(batch_);
    before_ = words_;
  }
  unsigned write(int workers = 7) { return write_on_device(words_, batch_.lengths(), workers).refusal; }
  void expect_refused(unsigned why, int workers = 7) {
    EXPECT_EQ(write(workers), why);
    EXPECT_EQ(words_, before_) << "nothing may be written";
  }

  LengthsOnDevice batch_;
  std::vector<std::int32_t> words_, before_;
};

TEST_F(AttentionListOfTheDevice, IsWrittenWhereEverythingIsRight) { EXPECT_EQ(write(), FAULT_NONE); }

TEST_F(AttentionListOfTheDevice, OfALongLineOfOneTileEachIsTheHosts) {
  batch_.shape = {.tile_rows = 2, .tile_kv = 1, .group = 2, .causal = true};
  batch_.qo = {0, 1, 2};
  for (const std::int32_t length : {1 << 27, 1 << 28}) {  // four tiles, and lines below and above 2^30
    batch_.kv = {0, length, 2 * length};
    words_ = begun(batch_);
    const DeviceResult result = write_on_device(words_, batch_.lengths(), 7);
    EXPECT_EQ(result.refusal, FAULT_NONE);
    EXPECT_EQ(result.one_tile, length == 1 << 27);
    EXPECT_EQ(words_, of_host(batch_));
  }
}

TEST_F(AttentionListOfTheDevice, IsRefusedInABufferWithoutAListForIt) {
  batch_.limits.on_device = false;
  before_ = words_ = begun(batch_);
  expect_refused(FAULT_NO_LIST);
  before_ = words_ = std::vector<std::int32_t>(words_.size());
  expect_refused(FAULT_NO_LIST);
}

TEST_F(AttentionListOfTheDevice, IsRefusedBeyondTheLimitsOfItsBuffer) {
  expect_refused(FAULT_LIMITS, 8);
  batch_.qo = {0, 3, 9};
  expect_refused(FAULT_LIMITS);
  batch_.qo = {0, 1, 2, 3}, batch_.kv = {0, 1, 2, 3};
  expect_refused(FAULT_LIMITS);
}

TEST_F(AttentionListOfTheDevice, IsRefusedForLengthsThatTheHostRefuses) {
  const LengthsOnDevice good = batch_;
  const auto refused = [&](auto&& change) {
    batch_ = good;
    change(batch_);
    EXPECT_ANY_THROW(of_host(batch_));
    expect_refused(FAULT_LENGTHS);
  };
  refused([](LengthsOnDevice& of) { of.qo = {0, 3, 2}; });
  refused([](LengthsOnDevice& of) { of.qo = {-1, 3, 5}; });
  refused([](LengthsOnDevice& of) { of.kv = {0, 30, 29}; });
  refused([](LengthsOnDevice& of) { of.kv = {-5, 30, 40}; });
  refused([](LengthsOnDevice& of) { of.kv = {0, 30, 0x7fffffff}; });
  refused([](LengthsOnDevice& of) { of.kv_len = {30, 41}; });
  refused([](LengthsOnDevice& of) { of.kv_len = {30, -1}; });
  refused([](LengthsOnDevice& of) { of.page_size = 4, of.last = {4, 5}; });
  refused([](LengthsOnDevice& of) { of.page_size = 4, of.last = {0, 4}; });
  refused([](LengthsOnDevice& of) { of.page_size = 4, of.kv_len = {121, 3}; });
}

INSTANTIATE_TEST_SUITE_P(Random, AttentionListOnDevice, ::testing::Range(0u, 10u));

}  // namespace
}  // namespace kiln::attention::test

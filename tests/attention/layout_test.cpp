// The words of a work list are declared once (templates/attention/words.h). Their numbers, which are checked
// here, must not change: kernels that were compiled earlier depend on them.
#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <set>
#include <string>

#include "attention/device_words.hpp"
#include "attention/layout.hpp"
#include "attention/plan.hpp"
#include "support/places.hpp"

namespace kiln::attention::test {
namespace {

#define EXPECT_SAME(Host, Device, field)                     \
  EXPECT_EQ(offsetof(Host, field), offsetof(Device, field)); \
  words += sizeof(Device::field) / 4

TEST(AttentionLayout, HostAndDeviceHaveTheSameFields) {
  std::size_t words = 0;
  EXPECT_SAME(Header, AttentionHeader, made_for);
  EXPECT_SAME(Header, AttentionHeader, workers);
  EXPECT_SAME(Header, AttentionHeader, kv_heads);
  EXPECT_SAME(Header, AttentionHeader, window_left);
  EXPECT_SAME(Header, AttentionHeader, requests);
  EXPECT_SAME(Header, AttentionHeader, tokens);
  EXPECT_SAME(Header, AttentionHeader, window_right);
  EXPECT_SAME(Header, AttentionHeader, slots);
  EXPECT_SAME(Header, AttentionHeader, requests_at);
  EXPECT_SAME(Header, AttentionHeader, busy);
  EXPECT_SAME(Header, AttentionHeader, ticks);
  EXPECT_SAME(Header, AttentionHeader, shape);
  EXPECT_SAME(Header, AttentionHeader, max_requests);
  EXPECT_SAME(Header, AttentionHeader, max_tokens);
  EXPECT_EQ(4 * words, sizeof(Header));
  words = 0;
  EXPECT_SAME(Request, AttentionRequest, qo_begin);
  EXPECT_SAME(Request, AttentionRequest, qo_len);
  EXPECT_SAME(Request, AttentionRequest, kv_base);
  EXPECT_SAME(Request, AttentionRequest, kv_len);
  EXPECT_EQ(4 * words, sizeof(Request));
  words = 0;
  EXPECT_SAME(Item, AttentionItem, request);
  EXPECT_SAME(Item, AttentionItem, kv_head);
  EXPECT_SAME(Item, AttentionItem, first_row);
  EXPECT_SAME(Item, AttentionItem, qo_begin);
  EXPECT_SAME(Item, AttentionItem, qo_len);
  EXPECT_SAME(Item, AttentionItem, kv_len);
  EXPECT_SAME(Item, AttentionItem, kv_base);
  EXPECT_SAME(Item, AttentionItem, kv_begin);
  EXPECT_SAME(Item, AttentionItem, kv_end);
  EXPECT_SAME(Item, AttentionItem, first_slot);
  EXPECT_SAME(Item, AttentionItem, part);
  EXPECT_SAME(Item, AttentionItem, parts);
  EXPECT_EQ(4 * words, sizeof(Item));
}

TEST(AttentionLayout, TheDevicesOffsetsAreTheHosts) {
  std::ifstream in(std::string(places::kSourceDirectory) + "/templates/attention/work_list.cuh");
  const std::string text(std::istreambuf_iterator<char>(in), {});
  EXPECT_NE(text.find("HEADER = AttentionWords::HEADER, ITEM = AttentionWords::ITEM"), std::string::npos);
  EXPECT_NE(text.find("return AttentionWords::table(workers);"), std::string::npos);
  EXPECT_NE(text.find("AttentionWords::first_items(words, workers)"), std::string::npos);
  EXPECT_NE(text.find("AttentionWords::counters(words, workers)"), std::string::npos);
  EXPECT_NE(text.find("return first_items() + (workers + static_cast<i64>(i)) * ITEM"), std::string::npos);
  EXPECT_EQ(workers_at(), 16);
  for (const std::int64_t workers : {1, 2, 3, 4, 132, 65535}) {
    EXPECT_EQ(table_words(workers), (workers + 1 + 3) / 4 * 4);
    EXPECT_EQ(counters_at(workers), 16 + table_words(workers));
    EXPECT_EQ(first_items_at(workers), 16 + 2 * table_words(workers));
    EXPECT_EQ(items_at(workers), first_items_at(workers) + 12 * workers);
    EXPECT_EQ(first_items_at(workers) % 4, 0) << "16 bytes";
    std::vector<std::int32_t> list(static_cast<std::size_t>(first_items_at(workers)));
    EXPECT_EQ(AttentionWords::counters(list.data(), workers) - list.data(), counters_at(workers));
    EXPECT_EQ(AttentionWords::first_items(list.data(), workers) - list.data(), first_items_at(workers));
  }
}

TEST(AttentionLayout, TheWordOfWhatAKernelFixesIsTheDevices) {
  std::set<std::int32_t> words;
  int kernels = 0;
  for (const std::uint32_t rows : {1, 4, 16, 64, 128, 256})
    for (const std::uint32_t kv : {16, 32, 64, 128, 256})
      for (const std::uint32_t group : {1, 2, 3, 4, 8, 16})
        for (const bool causal : {false, true})
          for (const bool together : {false, true})
            for (const std::int64_t right :
                 {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1}, std::int64_t{127}, kMost}) {
              const std::int32_t word = made_for(rows, kv, group, causal, together, right);
              EXPECT_EQ(static_cast<std::uint32_t>(word),
                        attention_made_for(rows, kv, group, causal, together, narrow(right)));
              if (right < 0) {
                EXPECT_EQ(word, made_for(rows, kv, group, causal, together));
              }
              words.insert(word), ++kernels;
            }
  EXPECT_EQ(std::ssize(words), kernels) << "two kernels with one word";
}

}  // namespace
}  // namespace kiln::attention::test

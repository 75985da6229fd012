// The device's view of a plan and the host's are two texts: their fields must be the same ones in the same
// order.
#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "attention/layout.hpp"
#include "attention/plan.hpp"

namespace kiln::attention::test {
namespace {

std::string device_header() {
  std::ifstream in(std::string(KILN_SOURCE_DIR) + "/templates/kiln/attention_plan.cuh");
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string without_comments(const std::string& text) {
  std::istringstream in(text);
  std::string out;
  for (std::string line; std::getline(in, line);) out += line.substr(0, line.find("//")) + '\n';
  return out;
}

/// Names of the i32 fields of a struct, in the order of their declarations.
std::vector<std::string> fields_of(const std::string& name) {
  const std::string text = without_comments(device_header());
  const auto begin = text.find("struct " + name + " {");
  if (begin == std::string::npos) return {};
  const std::string body = text.substr(begin, text.find("\n\n", begin) - begin);
  std::vector<std::string> out;
  for (auto at = body.find("i32 "); at != std::string::npos; at = body.find("i32 ", at + 1)) {
    const std::string declared = body.substr(at + 4, body.find_first_of(";(", at) - at - 4);
    if (body[body.find_first_of(";(", at)] == '(') break;  // a function: the fields are above
    std::istringstream names(declared);
    for (std::string field; std::getline(names, field, ',');) {
      const auto first = field.find_first_not_of(" \n");
      out.push_back(field.substr(first, field.find_first_of(" [", first) - first));
    }
  }
  return out;
}

#define AT(Struct, field) \
  { #field, offsetof(Struct, field) }

void expect_fields(const std::string& name, const std::vector<std::pair<std::string, std::size_t>>& host) {
  const auto device = fields_of(name);
  ASSERT_EQ(device.size(), host.size()) << name;
  for (std::size_t i = 0; i < host.size(); ++i) {
    EXPECT_EQ(device[i], host[i].first) << name;
    EXPECT_EQ(host[i].second, 4 * i) << name << " " << host[i].first;
  }
}

TEST(AttentionLayout, HostAndDeviceHaveTheSameFields) {
  expect_fields("AttentionHeader",
                {AT(Header, made_for), AT(Header, workers), AT(Header, kv_heads), AT(Header, window_left),
                 AT(Header, requests), AT(Header, tokens), AT(Header, items), AT(Header, slots),
                 AT(Header, requests_at), AT(Header, reserved)});
  expect_fields("AttentionRequest",
                {AT(Request, qo_begin), AT(Request, qo_len), AT(Request, kv_base), AT(Request, kv_len)});
  expect_fields("AttentionItem",
                {AT(Item, request), AT(Item, kv_head), AT(Item, first_row), AT(Item, qo_begin),
                 AT(Item, qo_len), AT(Item, kv_len), AT(Item, kv_base), AT(Item, kv_begin), AT(Item, kv_end),
                 AT(Item, first_slot), AT(Item, part), AT(Item, parts)});
}

TEST(AttentionLayout, TheDevicesOffsetsAreTheHosts) {
  const std::string text = device_header();
  EXPECT_NE(text.find("HEADER = 16, ITEM = 12"), std::string::npos);
  EXPECT_NE(text.find("(workers + 1 + 3) / 4 * 4"), std::string::npos);
  EXPECT_NE(text.find("words + HEADER + 2 * table()"), std::string::npos);
  EXPECT_NE(text.find("return first_items() + (workers + static_cast<i64>(i)) * ITEM"), std::string::npos);
  EXPECT_EQ(workers_at(), 16);
  for (const std::int64_t workers : {1, 2, 3, 4, 132, 65535}) {
    EXPECT_EQ(table_words(workers), (workers + 1 + 3) / 4 * 4);
    EXPECT_EQ(counters_at(workers), 16 + table_words(workers));
    EXPECT_EQ(first_items_at(workers), 16 + 2 * table_words(workers));
    EXPECT_EQ(items_at(workers), first_items_at(workers) + 12 * workers);
    EXPECT_EQ(first_items_at(workers) % 4, 0) << "16 bytes";
  }
}

TEST(AttentionLayout, TheWordOfWhatAKernelFixesIsTheDevices) {
  const std::string text = device_header();
  EXPECT_NE(
      text.find("(((tile_rows * 65599 + tile_kv) * 65599 + group) * 2 + (causal ? 1 : 0)) ^ 0x4b415450"),
      std::string::npos);
  const auto device = [](std::uint32_t rows, std::uint32_t kv, std::uint32_t group, bool causal) {
    return static_cast<std::int32_t>((((rows * 65599 + kv) * 65599 + group) * 2 + (causal ? 1 : 0)) ^
                                     0x4b415450);
  };
  std::set<std::int32_t> words;
  int kernels = 0;
  for (const std::uint32_t rows : {1, 4, 16, 64, 128, 256})
    for (const std::uint32_t kv : {16, 32, 64, 128, 256})
      for (const std::uint32_t group : {1, 2, 3, 4, 8, 16})
        for (const bool causal : {false, true}) {
          EXPECT_EQ(made_for(rows, kv, group, causal), device(rows, kv, group, causal));
          words.insert(made_for(rows, kv, group, causal)), ++kernels;
        }
  EXPECT_EQ(std::ssize(words), kernels) << "two kernels with one word";
}

}  // namespace
}  // namespace kiln::attention::test

// Differences between two key texts: one row for every field.
#include "tools/kiln/store/key/difference.hpp"
#include "tools/kiln/store/key/sentences.hpp"

#include <gtest/gtest.h>

namespace kiln::cli {
namespace {

std::string field(const std::string& label, std::initializer_list<std::string> values) {
  std::string out = label;
  for (const std::string& value : values) out += ' ' + std::to_string(value.size()) + ':' + value;
  return out + '\n';
}

struct Row {
  std::string one, other;  ///< the only fields in which the two key texts differ
  std::string name, field, says;
};

std::string with(const std::string& fields) {
  return field("kiln-key", {"1"}) + field("template", {"t"}) + fields + field("arch", {"sm_90a"});
}

TEST(KeyDifference, EveryFieldIsNamed) {
  const std::string edge = "\"a.cuh\"";
  const std::vector<Row> rows = {
      {field("parameter", {"H", "1"}), field("parameter", {"H", "2"}), "H", "parameter",
       "H is 1 in the first and 2 in the second"},
      {field("parameter", {"H", "1"}), "", "H", "parameter",
       "H is 1 in the first, and there is none in the second"},
      {field("source", {"aa"}), field("source", {"bb"}), "", "source", "the template's source has changed"},
      {field("include", {"", edge, ".k0/a.cuh", "aa"}), field("include", {"", edge, ".k0/a.cuh", "bb"}),
       "a.cuh", "include", "a.cuh has changed (\"a.cuh\" in the source)"},
      {field("include", {"", edge, ".k0/a.cuh", "aa"}), "", "a.cuh", "include",
       "a.cuh is included in the first only (\"a.cuh\" in the source)"},
      {"", field("include", {".k0/b.cuh", edge, ".k0/a.cuh", "aa"}), "a.cuh", "include",
       "a.cuh is included in the second only (\"a.cuh\" in b.cuh)"},
      {field("include", {"", edge, ".k0/a.cuh", "aa"}), field("include", {"", edge, ".k1/a.cuh", "aa"}),
       "a.cuh", "include", "\"a.cuh\" in the source is .k0/a.cuh in the first and .k1/a.cuh in the second"},
      {field("name", {"f<1>"}), field("name", {"f<2>"}), "", "name",
       "the name expression is f<1> in the first and f<2> in the second"},
      {field("option", {"-std=c++17"}), field("option", {"-std=c++20"}), "-std", "option",
       "option is -std=c++17 in the first and -std=c++20 in the second"},
      {field("option", {"--minimal"}), "", "--minimal", "option",
       "option --minimal is given in the first only"},
      {field("facts", {"1"}), field("facts", {"2"}), "", "facts",
       "the version of kiln's facts is 1 in the first and 2 in the second"},
      {field("nvrtc", {"aaaaaaaaaaaaaaaa"}), field("nvrtc", {"bbbbbbbbbbbbbbbb"}), "", "nvrtc",
       "NVRTC is build-id aaaaaaaaaaaa in the first and build-id bbbbbbbbbbbb in the second"},
      {field("builtins", {"aa"}), field("builtins", {"bb"}), "", "builtins",
       "NVRTC's builtins library is build-id aa in the first and build-id bb in the second"},
      {field("builtins", {"aa"}), field("builtins", {"xxh3-128:bb"}), "", "builtins",
       "NVRTC's builtins library is build-id aa in the first and digest bb in the second"},
      {field("kiln-option", {"--fast"}), "", "--fast", "kiln-option",
       "kiln's own option --fast is given in the first only"},
      {field("header", {".t0/cuda_fp16.h", "aa"}), field("header", {".t0/cuda_fp16.h", "bb"}), "cuda_fp16.h",
       "header", "cuda_fp16.h of the toolkit has changed"},
      {"", field("project-header", {".k0/x.h", "aa"}), "x.h", "project-header",
       "x.h is included in the second only"},
      {field("new-field", {"a"}), field("new-field", {"b"}), "", "new-field",
       "new-field is a in the first and b in the second"},
  };
  for (const Row& row : rows) {
    const auto differences = key_differences(with(row.one), with(row.other));
    ASSERT_EQ(differences.size(), 1u) << row.says;
    EXPECT_EQ(differences[0].field, row.field);
    EXPECT_EQ(differences[0].name, row.name);
    EXPECT_EQ(sentence(differences[0], {}), row.says);
  }
}

TEST(KeyDifference, EqualTextsHaveNoneAndAnotherOrderIsOne) {
  const std::string a = field("option", {"-DA"}), b = field("option", {"-DB"});
  EXPECT_TRUE(key_differences(with(a + b), with(a + b)).empty());
  const auto differences = key_differences(with(a + b), with(b + a));
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(differences[0].field, "order");
}

TEST(KeyDifference, AFileThatSeveralIncludeIsOneDifference) {
  const auto text = [](const std::string& digest) {
    return with(field("include", {"", "\"a.cuh\"", ".k0/a.cuh", digest}) +
                field("include", {".k0/b.cuh", "<a.cuh>", ".k0/a.cuh", digest}));
  };
  EXPECT_EQ(key_differences(text("aa"), text("bb")).size(), 1u);
}

TEST(KeyDifference, WhatACallerSaysWeighsMoreThanWhatChanged) {
  const std::string asked = with(field("parameter", {"H", "1"}) + field("source", {"aa"}));
  const auto other_source =
      key_differences(with(field("parameter", {"H", "1"}) + field("source", {"bb"})), asked);
  const auto other_value =
      key_differences(with(field("parameter", {"H", "2"}) + field("source", {"aa"})), asked);
  EXPECT_LT(distance_of(other_source), distance_of(other_value));
}

TEST(KeyDifference, ManyToolkitHeadersAreCounted) {
  std::string one, other;
  for (int i = 0; i < 30; ++i) {
    one += field("header", {".t0/h" + std::to_string(i), "aa"});
    other += field("header", {".t0/h" + std::to_string(i), "bb"});
  }
  const auto lines = sentences(key_differences(with(one), with(other)), {});
  ASSERT_EQ(lines.size(), 11u);
  EXPECT_EQ(lines.back(), "and 20 other headers of the toolkit");
}

}  // namespace
}  // namespace kiln::cli

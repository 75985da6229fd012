// For every text the quick reader gives the result of toml++, or leaves the text to toml++.
#include "manifest/toml/quick.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <random>
#include <set>

#include "base/file.hpp"
#include "kiln/error.hpp"
#include "manifest/toml/tree.hpp"
#include "support/places.hpp"

namespace kiln::source {
namespace {

bool same(const TomlValue& a, const TomlValue& b) {
  if (a.kind != b.kind || a.line != b.line || a.string != b.string || a.integer != b.integer ||
      a.real != b.real || a.boolean != b.boolean || a.items.size() != b.items.size() ||
      a.members.size() != b.members.size())
    return false;
  for (std::size_t i = 0; i < a.items.size(); ++i)
    if (!same(a.items[i], b.items[i])) return false;
  for (std::size_t i = 0; i < a.members.size(); ++i)
    if (a.members[i].first != b.members[i].first || !same(a.members[i].second, b.members[i].second))
      return false;
  return true;
}

std::optional<TomlValue> parsed(const std::string& text) {
  try {
    return parse_toml(text, "t.toml");
  } catch (const Error&) {
    return std::nullopt;
  }
}
void a_line_up(TomlValue& value) {
  --value.line;
  for (TomlValue& item : value.items) a_line_up(item);
  for (auto& member : value.members) a_line_up(member.second);
}
/// Parses with toml++: the quick reader leaves texts that are not ASCII to it, so a
/// comment makes the text such.
std::optional<TomlValue> parsed_whole(const std::string& text) {
  std::optional<TomlValue> tree = parsed("# \xc3\xa4\n" + text);
  if (tree)
    for (auto& member : tree->members) a_line_up(member.second);
  return tree;
}

std::vector<std::string> manifests() {
  std::set<std::string> files;  // sorted, so that the order does not depend on the file system
  for (const char* directory : {"/templates", "/tests/fixtures/templates"})
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(std::string(places::kSourceDirectory) + directory))
      if (entry.path().extension() == ".toml") files.insert(entry.path().string());
  std::vector<std::string> out;
  for (const std::string& file : files) out.push_back(base::read_file(file)->bytes);
  return out;
}

TEST(TomlQuick, ReadsWhatManifestsAreWrittenIn) {
  const std::string text =
      "a = \"text\" # why\n\tb=-12\r\nc = [1, 2.5e-3,\n  # gap\n  \"x\", []]\n\n[t.u]\nd = { e = true, f = "
      "[{ g = 0 }] }\n"
      "[[t.v]]\n[t.v.w]\nh = false\n[[ t.v ]]\nempty = \"\"";
  const auto got = quick_toml(text);
  ASSERT_TRUE(got);
  EXPECT_TRUE(same(*got, *parsed_whole(text)));
  EXPECT_EQ(got->find("b")->integer, -12);
  EXPECT_EQ(got->find("c")->items[1].real, 2.5e-3);
  EXPECT_EQ(got->find("t")->find("v")->items.size(), 2u);
  EXPECT_EQ(got->find("t")->find("v")->items[1].line, 12);
}

TEST(TomlQuick, LeavesEverythingElse) {
  for (const std::string line : {"a = \"x\\n\"",
                                 "a = \"\xc3\xa4\"",
                                 "a = \"x\ty\"",
                                 "a = \"x\" b",
                                 "a = \"x",
                                 "a.b = \"x\"",
                                 "a b = \"x\"",
                                 "a = 'x'",
                                 "\"a\" = \"x\"",
                                 "# \xff",
                                 "a = \"x\" # \x01",
                                 "= \"x\"",
                                 "a = \"\"\"x\"\"\"",
                                 "a = 1\na = 2",
                                 "a = 1_0",
                                 "a = +1",
                                 "a = 01",
                                 "a = 0x1",
                                 "a = 1.",
                                 "a = .5",
                                 "a = 1e",
                                 "a = nan",
                                 "a = 1e999",
                                 "a = 1234567890123456789",
                                 "a = 2026-01-01",
                                 "a = truely",
                                 "a = {b = 1,}",
                                 "a = {b = 1\n}",
                                 "a = [1 2]",
                                 "a = [,]",
                                 "a =",
                                 "a",
                                 "[a",
                                 "[a]b",
                                 "[]",
                                 "[a.]",
                                 "[[a]",
                                 "[ [a] ]",
                                 "[a]\n[a]",
                                 "[a.b]\n[a]",
                                 "[a]\n[[a]]",
                                 "[[a]]\n[a]",
                                 "a = {}\n[a.b]",
                                 "a = [{}]\n[[a]]",
                                 "a = [{}]\n[a.b]",
                                 "a = 1\n[a.b]",
                                 "a = 1\rb = 2"})
    EXPECT_FALSE(quick_toml(line + '\n')) << line;
  std::string deep = "a = ";
  for (int i = 0; i < 100; ++i) deep += '[';
  EXPECT_FALSE(quick_toml(deep));
}

TEST(TomlQuick, EveryManifestSaysTheSame) {
  const auto all = manifests();
  ASSERT_GT(all.size(), 3u);
  for (const std::string& text : all) {
    const auto whole = parsed_whole(text);
    ASSERT_TRUE(whole);
    const auto quick = quick_toml(text);
    ASSERT_TRUE(quick) << text.substr(0, 100);
    EXPECT_TRUE(same(*quick, *whole)) << text.substr(0, 100);
    std::string carriage;
    for (const char c : text) carriage.append(c == '\n' ? "\r\n" : std::string(1, c));
    const auto with = parsed(carriage), without = parsed_whole(carriage);
    ASSERT_TRUE(with && without);
    EXPECT_TRUE(same(*with, *without));
  }
}

TEST(TomlQuick, EveryMutationIsJudgedTheSame) {
  const auto all = manifests();
  std::mt19937 random(11);
  const auto upto = [&](std::size_t n) { return random() % n; };
  constexpr std::string_view kBytes("\"'\\#=[]{}\n\r\t ,.a1_-\x01\xc3\x7f");
  int right = 0, wrong = 0, quick = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text = all[upto(all.size())];
    for (std::size_t n = 1 + upto(3); n > 0; --n) {
      const std::size_t at = upto(text.size());
      switch (upto(3)) {
        case 0:
          text[at] = kBytes[upto(kBytes.size())];
          break;
        case 1:
          text.insert(at, 1, kBytes[upto(kBytes.size())]);
          break;
        default:
          text.erase(at, 1 + upto(20));
      }
    }
    const auto got = parsed(text), whole = parsed_whole(text);
    ASSERT_EQ(got.has_value(), whole.has_value()) << text;
    if (got) {
      ASSERT_TRUE(same(*got, *whole)) << text;
    }
    ++(got ? right : wrong);
    if (quick_toml(text)) ++quick;
  }
  EXPECT_GT(quick, 200);
  EXPECT_GT(right, 200);
  EXPECT_GT(wrong, 200);
}

TEST(TomlQuick, ErrorsAreThoseOfTheWholeText) {
  try {
    parse_toml("a = \"x\"\n# y\nb = \"x\"\nb = \"some text\"\n", "t.toml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("t.toml:4: ")) << error.what();
  }
}

}  // namespace
}  // namespace kiln::source

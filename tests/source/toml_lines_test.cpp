// What is taken out of a manifest before its parser sees it changes neither what it says nor what is wrong
// with it.
#include "source/toml_lines.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <random>
#include <set>

#include "base/file.hpp"
#include "kiln/error.hpp"
#include "source/toml_tree.hpp"

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
/// Parsed as it stands: a comment before it keeps shorten_toml from taking anything out (behind it, it could
/// end a string that a mutation opened).
std::optional<TomlValue> parsed_whole(const std::string& text) {
  std::optional<TomlValue> tree = parsed("# \"\"\"\n" + text);
  if (tree)
    for (auto& member : tree->members) a_line_up(member.second);
  return tree;
}

std::vector<std::string> manifests() {
  std::set<std::string> files;  // in an order that no file system decides
  for (const char* directory : {"/templates", "/tests/fixtures/templates"})
    for (const auto& entry : std::filesystem::directory_iterator(std::string(KILN_SOURCE_DIR) + directory))
      if (entry.path().extension() == ".toml") files.insert(entry.path().string());
  std::vector<std::string> out;
  for (const std::string& file : files) out.push_back(base::read_file(file)->bytes);
  return out;
}

TEST(TomlLines, TakesOutPlainStringsCommentsAndBlanksOfWholeLines) {
  const ShortToml got =
      shorten_toml("a = \"text\"\n  b=\"x y\"  # why\n# all of it\n \t\nc = 1 # stays\nd = \"\"\n");
  EXPECT_EQ(got.text, "a = \"\"\n  b=\"\"\n\n\nc = 1 # stays\nd = \"\"\n");
  ASSERT_EQ(got.strings.size(), 7u);
  EXPECT_EQ(got.strings[1], "text");
  EXPECT_EQ(got.strings[2], "x y");
  for (const std::size_t line : {0u, 3u, 4u, 5u, 6u}) EXPECT_EQ(got.strings[line].data(), nullptr) << line;
}

TEST(TomlLines, LeavesWhatCouldBeWrong) {
  for (const std::string line :
       {"a = \"x\\n\"", "a = \"\xc3\xa4\"", "a = \"x\ty\"", "a = \"x\" b", "a = \"x", "a.b = \"x\"",
        "a b = \"x\"", "a = [\"x\"]", "a = 'x'", "\"a\" = \"x\"", "# \xff", "a = \"x\" # \x01", "= \"x\""})
    EXPECT_EQ(shorten_toml(line + '\n').text, line + '\n');
  const std::string several = "a = \"\"\"\nb = \"text\"\n\"\"\"\nc = \"text\"\n";
  EXPECT_EQ(shorten_toml(several).text, several);
}

TEST(TomlLines, EveryManifestSaysTheSame) {
  const auto all = manifests();
  ASSERT_GT(all.size(), 3u);
  for (const std::string& text : all) {
    const auto whole = parsed_whole(text);
    ASSERT_TRUE(whole);
    EXPECT_TRUE(same(*parsed(text), *whole)) << text.substr(0, 100);
    EXPECT_LT(shorten_toml(text).text.size(), text.size() * 3 / 4);
    std::string carriage;
    for (const char c : text) carriage.append(c == '\n' ? "\r\n" : std::string(1, c));
    const auto with = parsed(carriage), without = parsed_whole(carriage);
    ASSERT_TRUE(with && without);
    EXPECT_TRUE(same(*with, *without));
  }
}

TEST(TomlLines, EveryMutationIsJudgedTheSame) {
  const auto all = manifests();
  std::mt19937 random(11);
  const auto upto = [&](std::size_t n) { return random() % n; };
  constexpr std::string_view kBytes("\"'\\#=[]{}\n\r\t ,.a1_-\x01\xc3\x7f");
  int right = 0, wrong = 0;
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
  }
  EXPECT_GT(right, 200);
  EXPECT_GT(wrong, 200);
}

TEST(TomlLines, ErrorsAreThoseOfTheWholeText) {
  try {
    parse_toml("a = \"x\"\n# y\nb = \"x\"\nb = \"some text\"\n", "t.toml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("t.toml:4: ")) << error.what();
  }
}

}  // namespace
}  // namespace kiln::source

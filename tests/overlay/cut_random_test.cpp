// Pieces of real device code, cut at random places and put together at random: whatever the texts are, a cut keeps
// their sizes, lines and directives.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "base/file.hpp"
#include "overlay/cut.hpp"
#include "overlay/tokens.hpp"
#include "support/nightly.hpp"
#include "support/places.hpp"

namespace kiln::source {
namespace {

/// The sources and headers below templates/ and tests/fixtures/foreign, in the order of their paths.
const std::vector<std::string>& device_code() {
  static const std::vector<std::string> kAll = [] {
    std::vector<std::filesystem::path> paths;
    for (const char* folder : {"/templates", "/tests/fixtures/foreign"}) {
      for (const auto& entry :
           std::filesystem::recursive_directory_iterator(std::string(places::kSourceDirectory) + folder)) {
        if (entry.is_regular_file() && entry.path().extension() != ".toml" &&
            entry.path().extension() != ".md")
          paths.push_back(entry.path());
      }
    }
    std::sort(paths.begin(), paths.end());
    std::vector<std::string> out;
    for (const auto& path : paths) {
      if (const auto file = base::read_file(path.string(), 1 << 22)) out.push_back(file->bytes);
    }
    return out;
  }();
  return kAll;
}

/// The directives of a text that a cut keeps in any case.
std::vector<std::string_view> directives_of(std::string_view text) {
  std::vector<std::string_view> out;
  for (const Token& token : tokens_of(text)) {
    if (token.kind == Token::Kind::directive && directive_text(token.text).name != "pragma")
      out.push_back(token.text);
  }
  return out;
}

/// Every byte is kept or is a blank, apart from a ';' or braces in the place of a body; every line end and every directive is
/// kept.
void expect_only_blanked(const std::string& text, const std::string& cut) {
  ASSERT_EQ(cut.size(), text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (cut[i] == text[i]) continue;
    if ((text[i] == '{' || text[i] == ':') && (cut[i] == ';' || cut[i] == '{'))
      continue;  // the body of a function whose head stays
    if (cut[i] == '}' && text[i] != '\n' && cut.find_last_not_of(" \n", i - 1) == cut.rfind('{', i - 1))
      continue;  // the end of an empty body
    ASSERT_EQ(cut[i], ' ') << "byte " << i << " of\n" << text;
    ASSERT_NE(text[i], '\n') << "byte " << i << " of\n" << text;
  }
  // A '#' in the middle of a line, which no C++ text has, may come to the beginning of its line.
  const std::vector<std::string_view> left = directives_of(cut);
  auto next = left.begin();
  for (const std::string_view directive : directives_of(text)) {
    next = std::find(next, left.end(), directive);
    ASSERT_NE(next, left.end()) << directive << " of\n" << text;
    ++next;
  }
}

void expect_sound_cut(const std::vector<std::string>& texts, const CutRules& rules) {
  const CutTexts out = cut_host_code({texts.begin(), texts.end()}, rules);
  ASSERT_EQ(out.texts.size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) expect_only_blanked(texts[i], out.texts[i]);
}

/// A word of the text, as the name of a kernel.
std::string some_word(const std::string& text, std::mt19937& random) {
  const std::vector<Token> tokens = tokens_of(text);
  if (tokens.empty()) return "kernel";
  for (int i = 0; i < 20; ++i) {
    const Token& token = tokens[random() % tokens.size()];
    if (token.kind == Token::Kind::word) return std::string(token.text);
  }
  return "kernel";
}

TEST(CutOfRealDeviceCode, ThereIsSome) { EXPECT_GT(device_code().size(), 100u); }

TEST(CutOfRealDeviceCode, KeepsSizesLinesAndDirectives) {
  std::mt19937 random(1);
  for (const std::string& text : device_code()) {
    const CutRules rules{{some_word(text, random)}, {}, {}};
    expect_sound_cut({text}, rules);
    if (HasFatalFailure()) return;
    const CutTexts once = cut_host_code({text}, rules);
    ASSERT_EQ(cut_host_code({once.texts[0]}, rules).texts, once.texts) << "what is left needs no further cut";
  }
}

TEST(CutOfRealDeviceCode, KeepsThemWhenFilesAreTruncated) {
  std::mt19937 random(2);
  for (int i = 0; i < ci_or_night(400, 20000); ++i) {
    const std::string& whole = device_code()[random() % device_code().size()];
    const std::size_t from = random() % 2 ? 0 : random() % (whole.size() + 1);
    const std::string text = whole.substr(from, random() % (whole.size() - from + 1));
    expect_sound_cut({text},
                     {{some_word(text, random)}, {some_word(text, random)}, {some_word(text, random)}});
    if (HasFatalFailure()) return;
  }
}

TEST(CutOfRealDeviceCode, KeepsThemWhenPiecesAreMixed) {
  std::mt19937 random(3);
  const char* const odd[] = {"{",
                             "}",
                             "(",
                             ")",
                             "<",
                             ">",
                             ";",
                             "\"",
                             "'",
                             "R\"(",
                             "/*",
                             "*/",
                             "//",
                             "\\\n",
                             "#",
                             "\n#if A\n",
                             "\n#else\n",
                             "\n#endif\n",
                             "\n#define A {\n",
                             "struct",
                             "template",
                             "operator",
                             "=",
                             ":",
                             "::",
                             "\r\n"};
  for (int i = 0; i < ci_or_night(400, 20000); ++i) {
    std::vector<std::string> texts(1 + random() % 3);
    for (std::string& text : texts) {
      for (int piece = 0; piece < 6; ++piece) {
        const std::string& whole = device_code()[random() % device_code().size()];
        text += whole.substr(random() % (whole.size() + 1), random() % 300);
        text += odd[random() % std::size(odd)];
      }
    }
    expect_sound_cut(texts, {{some_word(texts[0], random)}, {}, {}});
    if (HasFatalFailure()) return;
  }
}

TEST(CutOfRealDeviceCode, TakesAnyBytes) {
  std::mt19937 random(4);
  for (int i = 0; i < ci_or_night(300, 20000); ++i) {
    std::string text(random() % 200, '\0');
    for (char& c : text)
      c = random() % 2 ? static_cast<char>(random()) : "(){}<>;:#\"'\\/*\n a=[],"[random() % 22];
    const CutTexts out = cut_host_code({text}, {{"a"}, {}, {}});
    ASSERT_EQ(out.texts.at(0).size(), text.size());
    ASSERT_EQ(std::count(out.texts[0].begin(), out.texts[0].end(), '\n'),
              std::count(text.begin(), text.end(), '\n'));
  }
}

}  // namespace
}  // namespace kiln::source

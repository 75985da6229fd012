// The include scan at every offset, with splices everywhere, on noise, and on texts that are made to be slow.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <random>

#include "support/time_limit.hpp"
#include "tests/closure/scan_text.hpp"

namespace kiln::source {
namespace {

TEST(IncludeScan, IgnoresNamesOfInsaneLength) {
  EXPECT_EQ(scan("#include <" + std::string(1024, 'x') + ">\n").size(), 1026u);
  EXPECT_EQ(scan("#include <" + std::string(1025, 'x') + ">\n#include <y>\n"), "<y>");
  EXPECT_EQ(scan(std::string("#include <a\0b>\n#include <y>", 27)), "<y>");
}

TEST(IncludeScan, RemovesRepeatsAmongMany) {
  std::string text, expected;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 200; ++i) {
      text += "#include <h" + std::to_string(i) + ">\n";
      if (round == 0) expected += (i ? " <h" : "<h") + std::to_string(i) + ">";
    }
  }
  EXPECT_EQ(scan(text), expected);
}

/// The vector search has blocks and a tail, and must find an include at every offset in them.
TEST(IncludeScan, FindsEverythingAtEveryOffset) {
  for (std::size_t before = 0; before < 100; ++before) {
    for (std::size_t after = 0; after < 70; ++after) {
      const std::string text = std::string(before, '\n') + "#include <x>" + std::string(after, '\n');
      ASSERT_EQ(scan(text), "<x>") << before << ' ' << after;
    }
  }
}

/// A line splice anywhere changes nothing for the preprocessor, so it must change nothing for the scan.
TEST(IncludeScan, SplicesNeverHideAnything) {
  const std::string text =
      "int a;\n#include <one.h>\n# include \"two.h\"\n#if __has_include(<three.h>)\n#define H "
      "\"four.h\"\n#endif\nchar* d = __DATE__;\n";
  for (const std::string splice : {"\\\n", "\\\r\n", "\?\?/\n"}) {
    for (std::size_t a = 0; a < text.size(); ++a) {
      const std::string once = std::string(text).insert(a, splice);
      for (const std::size_t gap : {1u, 2u, 7u}) {
        std::string twice = once;
        twice.insert(std::min(a + splice.size() + gap, twice.size()), splice);
        for (const std::string& spliced : {once, twice}) {
          const ScanResult result = scan_includes(spliced);
          for (const char* name : {"one.h", "two.h", "three.h", "four.h"}) {
            EXPECT_TRUE(std::any_of(result.directives.begin(), result.directives.end(),
                                    [&](const auto& d) { return d.name == name; }))
                << name << " in\n"
                << spliced;
          }
          EXPECT_TRUE(result.date_time) << spliced;
        }
      }
    }
  }
}

TEST(IncludeScan, SurvivesNoise) {
  static constexpr std::string_view pieces[] = {"#",
                                                "include",
                                                "<",
                                                ">",
                                                "\"",
                                                "\\\n",
                                                "\?\?/\n",
                                                "\?\?=",
                                                "%:",
                                                "/*",
                                                "*/",
                                                "//",
                                                "define ",
                                                "\n",
                                                " ",
                                                "x.h",
                                                "__DATE__",
                                                "(",
                                                "if ",
                                                "\r\n",
                                                "clu",
                                                "__has_include",
                                                std::string_view("\0", 1)};
  std::mt19937 engine(11);
  for (int i = 0; i < 30'000; ++i) {
    std::string text;
    for (unsigned n = engine() % 40; n-- > 0;) text += pieces[engine() % std::size(pieces)];
    for (const IncludeDirective& d : scan_includes(text).directives) {
      ASSERT_FALSE(d.name.empty()) << text;
      ASSERT_EQ(d.name.find('\n'), std::string::npos) << text;
      ASSERT_LE(d.name.size(), 1024u);
    }
  }
}

/// Each text has 2 MB. Work that grows with the square of the size would take minutes.
TEST(IncludeScan, NoTextMakesItSlow) {
  for (const std::string_view piece : {"#",
                                       "#/*",
                                       "#include ",
                                       "#include <x",
                                       "#include \"x\\\n",
                                       "#define ",
                                       "#define A \"/*\"\n",
                                       "#define A <x ",
                                       "\\\n",
                                       "a\\\n",
                                       "include\\\n",
                                       "include(",
                                       "__has_include(<x",
                                       "#\\\n",
                                       "\"\\\n",
                                       "%:",
                                       "\?\?=",
                                       "\?\?/\n",
                                       "/*",
                                       "#define \"a",
                                       "#if (<a",
                                       "__DATE_",
                                       "_\\\n_",
                                       " ",
                                       "#include M\n",
                                       "# ",
                                       "#define A b",
                                       "\n#include /*",
                                       "\n#define A /*",
                                       "*\\\n"}) {
    std::string text;
    while (text.size() < (std::size_t{2} << 20)) text += piece;
    const auto begin = std::chrono::steady_clock::now();
    scan_includes(text);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_LT(seconds, at_most(20)) << piece;
    if (seconds > 2) std::cerr << seconds << " s for " << piece << '\n';
  }
}

}  // namespace
}  // namespace kiln::source

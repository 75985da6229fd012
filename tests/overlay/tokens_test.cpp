// How C++ text is split into tokens, where comments, literals and directives begin and end.
#include "overlay/tokens.hpp"

#include <gtest/gtest.h>

namespace kiln::source {
namespace {

/// The tokens of a text, each with a letter for its kind: "w:int s:; d:#if X l:'a'".
std::string split(std::string_view text) {
  std::string out;
  for (const Token& token : tokens_of(text)) {
    if (!out.empty()) out += ' ';
    out += "wlsd"[static_cast<int>(token.kind)];
    out += ':';
    out += token.text;
  }
  return out;
}

TEST(Tokens, WordsLiteralsAndSymbolsHaveTheirKinds) {
  EXPECT_EQ(split("int a = 1;"), "w:int w:a s:= l:1 s:;");
  EXPECT_EQ(split("std::max(a<b>>c)"), "w:std s::: w:max s:( w:a s:< w:b s:> s:> w:c s:)");
  EXPECT_EQ(split("_x$1 \xc3\xa4"), "w:_x$1 w:\xc3\xa4");
  EXPECT_EQ(split(""), "");
  EXPECT_EQ(split(" \t\r\n\v\f"), "");
}

TEST(Tokens, ANumberKeepsItsSignsSeparatorsAndSuffixes) {
  for (const std::string number :
       {"0x1p-3f", "1'000'000", "1e+5", "2.E-3L", ".5f", "0b1010u", "17ull", "3_km"})
    EXPECT_EQ(split(number + "+x"), "l:" + number + " s:+ w:x");
  EXPECT_EQ(split("1-2"), "l:1 s:- l:2");
  EXPECT_EQ(split("a.b"), "w:a s:. w:b");
  EXPECT_EQ(split("0x1P+4;"), "l:0x1P+4 s:;");
}

TEST(Tokens, CommentsAreLeftOut) {
  EXPECT_EQ(split("a // b \" ' /* c\nd"), "w:a w:d");
  EXPECT_EQ(split("a /* b // c\n \" */ d"), "w:a w:d");
  EXPECT_EQ(split("a /*/ b */ c"), "w:a w:c");
  EXPECT_EQ(split("a /**/ b /***/ c"), "w:a w:b w:c");
  EXPECT_EQ(split("a // b \\\n still a comment\nc"), "w:a w:c");
  EXPECT_EQ(split("a // b \\\r\n still a comment\r\nc"), "w:a w:c");
  EXPECT_EQ(split("a / b"), "w:a s:/ w:b");
}

TEST(Tokens, StringsAndCharactersAreOneToken) {
  EXPECT_EQ(split(R"(f("a // b", '"', '\'', "\"\\"))"),
            R"(w:f s:( l:"a // b" s:, l:'"' s:, l:'\'' s:, l:"\"\\" s:))");
  EXPECT_EQ(split("\"a\\\nb\" c"), "l:\"a\\\nb\" w:c");
  EXPECT_EQ(split("\"a\\\r\nb\" c"), "l:\"a\\\r\nb\" w:c");
  EXPECT_EQ(split("L\"x\""), "w:L l:\"x\"");
}

TEST(Tokens, RawStringsEndAtTheirDelimiter) {
  EXPECT_EQ(split("R\"(a \" ) \\)\" b"), "l:R\"(a \" ) \\)\" w:b");
  EXPECT_EQ(split("u8R\"x()\"\n// )y\")x\" b"), "l:u8R\"x()\"\n// )y\")x\" w:b");
  EXPECT_EQ(split("LR\"()\";"), "l:LR\"()\" s:;");
  EXPECT_EQ(split("FOOR\"(a)\" b"), "w:FOOR l:\"(a)\" w:b");
  EXPECT_EQ(split("R\"a delimiter that is too long(x)\" b"), "l:R\"a delimiter that is too long(x)\" w:b");
}

TEST(Tokens, UnfinishedLiteralsEndWithTheirLine) {
  EXPECT_EQ(split("\"a\nb"), "l:\"a w:b");
  EXPECT_EQ(split("'a\nb"), "l:'a w:b");
  EXPECT_EQ(split("it's not\ncode"), "w:it l:'s not w:code");
  EXPECT_EQ(split("\"a\\"), "l:\"a\\");
  EXPECT_EQ(split("'"), "l:'");
}

TEST(Tokens, UnfinishedCommentsAndRawStringsReachToTheEnd) {
  EXPECT_EQ(split("a /* b\nc"), "w:a");
  EXPECT_EQ(split("a /*"), "w:a");
  EXPECT_EQ(split("a /*/"), "w:a");
  EXPECT_EQ(split("a // b \\"), "w:a");
  EXPECT_EQ(split("a \\"), "w:a s:\\");
  EXPECT_EQ(split("R\"x(a\nb)\""), "l:R\"x(a\nb)\"");
  EXPECT_EQ(split("R\""), "l:R\"");
  EXPECT_EQ(split("a /"), "w:a s:/");
}

TEST(Tokens, ADirectiveIsOneTokenWithItsContinuations) {
  EXPECT_EQ(split("#if A\nb\n# endif\n"), "d:#if A w:b d:# endif");
  EXPECT_EQ(split("#define A \\\n  b\nc"), "d:#define A \\\n  b w:c");
  EXPECT_EQ(split("#define A \\\r\n  b\r\nc"), "d:#define A \\\r\n  b\r w:c");
  EXPECT_EQ(split("a # b"), "w:a s:# w:b");
  EXPECT_EQ(split("a \\\n# b"), "w:a s:# w:b") << "a continued line is no new line";
  EXPECT_EQ(split("/* c */ #if A"), "d:#if A");
  EXPECT_EQ(split("a /* c\n */ #if A"), "w:a s:# w:if w:A") << "a comment is one blank";
  EXPECT_EQ(split("#"), "d:#");
}

TEST(Tokens, ACommentInADirectiveMayGoOnToOtherLines) {
  EXPECT_EQ(split("#define A /* b\n c */ d\ne"), "d:#define A /* b\n c */ d w:e");
  EXPECT_EQ(split("#if A /* b\n */ /* c\n */\ne"), "d:#if A /* b\n */ /* c\n */ w:e");
  EXPECT_EQ(split("#endif /* a */\nb /* c */"), "d:#endif /* a */ w:b");
  EXPECT_EQ(split("#if A /* b */*c\nd"), "d:#if A /* b */*c w:d");
  EXPECT_EQ(split("#if A /* b"), "d:#if A /* b");
}

TEST(Tokens, ACommentMarkInALineCommentOrStringOfADirectiveIsNoComment) {
  EXPECT_EQ(split("#define A 1  // see /* here\nb\n/* c */ d"), "d:#define A 1  // see /* here w:b w:d");
  EXPECT_EQ(split("#define A \"/*\"\nb\n/* c */ d"), "d:#define A \"/*\" w:b w:d");
}

TEST(Tokens, TheTextOfADirectiveHasItsNameAndTheRest) {
  EXPECT_EQ(directive_text("#define A 1").name, "define");
  EXPECT_EQ(directive_text("#define A 1").rest, " A 1");
  EXPECT_EQ(directive_text("#  \tif(A)").name, "if");
  EXPECT_EQ(directive_text("#  \tif(A)").rest, "(A)");
  EXPECT_EQ(directive_text("#").name, "");
  EXPECT_EQ(directive_text("#/**/pragma once").name, "pragma") << "a comment may stand before the name";
}

TEST(Tokens, EveryTokenIsPartOfTheText) {
  const std::string_view text = "#if A\nint a = 'b'; /* c */ R\"(d)\" \"e\n";
  std::size_t before = 0;
  for (const Token& token : tokens_of(text)) {
    const auto at = static_cast<std::size_t>(token.text.data() - text.data());
    EXPECT_GE(at, before);
    before = at + token.text.size();
    EXPECT_LE(before, text.size());
    EXPECT_FALSE(token.text.empty());
  }
}

}  // namespace
}  // namespace kiln::source

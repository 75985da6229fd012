#include <gtest/gtest.h>

#include "tests/closure/scan_text.hpp"

namespace kiln::source {
namespace {

struct ScanRow {
  const char* text;
  const char* expected;
};
void check(std::initializer_list<ScanRow> rows) {
  for (const ScanRow& row : rows) {
    EXPECT_EQ(scan(row.text), row.expected) << row.text;
    // The text further inside a file has another alignment and lies in other blocks of the vector search.
    for (const std::size_t before : {1, 13, 29, 31, 64}) {
      EXPECT_EQ(scan(std::string(before, 'x') + '\n' + row.text + "\nint tail;\n"), row.expected)
          << before << ": " << row.text;
    }
  }
}

TEST(IncludeScan, TakesPlainIncludesInOrder) {
  EXPECT_EQ(
      scan("#include <b.h>\n#include \"a.h\"\nint x;\n#include <c/d.h>\n#include <b.h>\n#include \"b.h\"\n"),
      "<b.h> \"a.h\" <c/d.h> \"b.h\"");
  EXPECT_EQ(scan(""), "");
  EXPECT_EQ(scan("#include <x>"), "<x>");
  EXPECT_EQ(scan("#"), "");
  EXPECT_EQ(scan("#include"), "");
  EXPECT_EQ(scan("#include <"), "");
  EXPECT_EQ(scan("#include \"x"), "");
  EXPECT_EQ(scan("#include <>\n#include \"\"\n"), "");
}

TEST(IncludeScan, TakesEveryFormOfTheDirective) {
  check({
      {"# include <x>", "<x>"},
      {"  \t#\tinclude\t<x>", "<x>"},
      {"#\vinclude\f<x>", "<x>"},
      {"#include<x>", "<x>"},
      {"#include\"x\"", "\"x\""},
      {"%:include <x>", "<x>"},
      {"%: include <x>", "<x>"},
      {"\?\?=include <x>", "<x>"},
      {"#include_next <x>", "n<x>"},
      {"#import \"x\"", "\"x\""},
      {"#/**/include/**/<x>", "<x>"},
      {"/* c */ # /* c */ include /* c */ <x>", "<x>"},
      {"/*\n*/ #include <x>", "<x>"},
      {"#include /*\n\n*/ <x>", "<x>"},
      {"#include <x> // why", "<x>"},
      {"#include <x>junk", "<x>"},
      {"\xef\xbb\xbf#include <x>", "<x>"},
      {"#include <a b.h>", "<a b.h>"},
      {"#include < x>", "< x>"},
      {"#include \"a\\b.h\"", "\"a\\b.h\""},
      {"#include \"//x.h\"", "\"//x.h\""},
  });
}

TEST(IncludeScan, TakesDirectivesWithLineSplicesAnywhere) {
  check({
      {"#inc\\\nlude <x>", "<x>"},
      {"#\\\ninclude <x>", "<x>"},
      {"\\\n#include <x>", "<x>"},
      {"#i\\\nn\\\nc\\\nl\\\nu\\\nd\\\ne <x>", "<x>"},
      {"#include\\\n<x>", "<x>"},
      {"#include <cuda_\\\nfp16.h>", "<cuda_fp16.h>"},
      {"#include \"a\\\r\nb\"", "\"ab\""},
      {"#inc\\\r\nlude <x>", "<x>"},
      {"#inc\\\r\r\nlude <x>", "<x>"},
      {"#\rinclude\r<x>", "<x>"},
      {"\r#include <x>", "<x>"},
      {"#inc\?\?/\nlude <x>", "<x>"},
      {"%\\\n:include <x>", "<x>"},
      {"%\?\?/\n:include <x>", "<x>"},
      {"/* *\\\n/ #include <x>", "<x>"},
      {"#/\\\n*c*\\\n/include <x>", "<x>"},
      {"#define A \\\n B\n#include <x>", "<x>"},
  });
}

TEST(IncludeScan, TakesDirectivesInDeadCodeAndBlockComments) {
  check({
      {"#if 0\n#include <x>\n#endif", "<x>"},
      {"/*\n#include <x>\n*/", "<x>"},
      {"R\"(\n#include <x>\n)\"", "<x>"},
      {"// spliced \\\n#include <x>", "<x>"},
  });
}

TEST(IncludeScan, LeavesOutWhatNoPreprocessorTakes) {
  check({
      {"// #include <x>", ""},
      {"//! #include <cub/cub.cuh>", ""},
      {" * #include <x>", ""},
      {"int a; #include <x>", ""},
      {"x / #include <x>", ""},
      {"f(#include <x>)", ""},
      {"#included <x>", ""},
      {"#includes <x>", ""},
      {"##include <x>", ""},
      {"#pragma include <x>", ""},
      {"#include <x\n>", ""},
      {"#include \"x\ny\"", ""},
      {"% :include <x>", ""},
      {"#in clude <x>", ""},
      {"#in\\ \nclude <x>", ""},
  });
}

TEST(IncludeScan, TakesWhatCommentsEndBefore) {
  check({{"// x */ #include <y>", "<y>"}, {"/* a */ /* b */ #include <y>", "<y>"}, {"/#include <y>", "<y>"}});
}

TEST(IncludeScan, TakesHasIncludeAndMacrosThatWrapIt) {
  check({
      {"#if __has_include(<x>)", "<x>"},
      {"#if __has_include(\"x\")", "\"x\""},
      {"#if __has_include ( <x>)", "<x>"},
      {"#if defined(__has_include) && __has_include(<x>)", "<x>"},
      {"#if __has_include_next(<x>)", "<x>"},
      {"#if _CCCL_HAS_INCLUDE(<cuda_fp16.h>)", "<cuda_fp16.h>"},
      {"#if HasInclude(\"x\")", "\"x\""},
      {"#if iNcLuDe_it(<x>)", "<x>"},
      {"bool b = __has_include(<x>);", "<x>"},
      {"#if __has_inc\\\nlude(<x>)", "<x>"},
      {"#if __has_include\\\n(<x>)", "<x>"},
      {"#if __has_include(/**/<x>)", "<x>"},
      {"#if __has_in\?\?/\nclude_it(<x>)", "<x>"},
      {"x\\\n_include\\\n(<x>)", "<x>"},
      {"__i\\\nn\\\nc\\\nl\\\nu\\\nd\\\ne(<x>)", "<x>"},
      {"#if __has_include(MACRO)", ""},
      {"#if HAS_INCLUDE(<x.h\t>)", "<x.h> <x.h\t>"},
      {"#if HAS(<x.h/**/>)", "<x.h>"},
  });
}

TEST(IncludeScan, TakesHeaderLikeStringsOfDefinesAndConditions) {
  check({
      {"#define HDR <foo.h>", "<foo.h>"},
      {"#define HDR \"foo.h\"", "\"foo.h\""},
      {"#define HDR \"dir/foo\"", "\"dir/foo\""},
      {"#define HDR <type_traits>", "<type_traits>"},
      {"#define HDR(x) PICK(<a/b.h>, \"c.h\")", "<a/b.h> \"c.h\""},
      {"# /**/ define HDR \\\n  <foo.h>", "<foo.h>"},
      {"#define HDR /* \n */ \"foo.h\"", "\"foo.h\""},
      {"#define HDR \\\r\n \"foo.h\"\n\"not.h\"", "\"foo.h\""},
      {"#define HDR \?\?/\n \"foo.h\"", "\"foo.h\""},
      {"#define HDR \"fo\\\no.h\"", "\"foo.h\""},
      {"%:define HDR \"foo.h\"", "\"foo.h\""},
      {"#if HAS(<foo.h>)", "<foo.h>"},
      {"#elif HAS(\"foo.h\")", "\"foo.h\""},
      {"#define A \" /* \" \"x.h\"\n\"no.h\"", "\"x.h\" \"no.h\""},  // rather too much than too little
      {"/* #define A \" */ #define B \"x.h\"", "\"x.h\""},
      {"#define A \"/etc/passwd\"", ""},
      {"#define A </etc/passwd>", ""},
      {"#define A static_cast<int>(x)", ""},
      {"#define A (1 << 2 > 3)", ""},
      {"#define A \"plain\"", ""},
      {"#define A \"%d.%d\"", ""},
      {"#define A \"ld.\" B", ""},
      {"#define A (a < b && c > d)", ""},
      {"#define A x\n\"y.h\"", ""},
      {"#undef A \"x.h\"", ""},
      {"#ifdef A // \"x.h\"", ""},
  });
}

TEST(IncludeScan, KeepsDefinitionsThatANameMayBePutTogetherFrom) {
  const auto definitions = [](const std::string& text) {
    std::string out;
    for (const auto& [name, value] : scan_includes(text).definitions)
      out += (out.empty() ? "" : " ") + name + '=' + value;
    return out;
  };
  EXPECT_EQ(definitions("#define ROOT thrust/system/cpp\n# define N omp // why\n#define G\n#define F(x) "
                        "y\n#define P a b\n#define I 3\n#define S \"x\"\n"),
            "ROOT=thrust/system/cpp N=omp");
  EXPECT_EQ(definitions("#define A /**/ b /**/\n#define B c\r\n#define C d"), "A=b B=c C=d");
}

TEST(IncludeScan, TellsComputedIncludes) {
  for (const char* text :
       {"#include MACRO", "# include MACRO(x)", "/* */ #include __FILE__", "#inc\\\nlude M", "%:include M",
        "#include_next M", "/*\n#include M\n*/", "#include /**/ M", "#include \\\nM"}) {
    EXPECT_TRUE(scan_includes(text).computed) << text;
  }
  for (const char* text :
       {"// #include the header", " * #include MACRO", "say #include X", "#include <x>", "#include \"x\"",
        "#include", "#include\n", "#include <x", "#includes M", "#include ..."}) {
    EXPECT_FALSE(scan_includes(text).computed) << text;
  }
}

TEST(IncludeScan, TellsDateAndTime) {
  for (const char* text : {"__DATE__", "a(__TIME__)", "x __TIMESTAMP__ y", "__DA\\\nTE__", "_\\\n_TIME__",
                           "// __DATE__", "__TIM\?\?/\nE__"}) {
    EXPECT_TRUE(scan_includes(text).date_time) << text;
    EXPECT_TRUE(scan_includes(std::string(47, ' ') + text + ';').date_time) << text;
  }
  for (const char* text : {"__DATA__", "__TIMER__", "DATE", "__date__", "__DATE_", "__DA TE__"})
    EXPECT_FALSE(scan_includes(text).date_time) << text;
}

}  // namespace
}  // namespace kiln::source

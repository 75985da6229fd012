// The meaning of macros: marks of a function, scopes, instantiations, whole declarations.
#include "overlay/macros.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "overlay/expansion.hpp"

namespace kiln::source {
namespace {

/// The macros of a text that lives as long as the test.
class MacrosOfText : public ::testing::Test {
 protected:
  Macros& read(std::string text) {
    text_ = std::move(text);
    macros_ = Macros();
    macros_.add(tokens_of(text_));
    return macros_;
  }

 private:
  std::string text_;
  Macros macros_;
};

TEST_F(MacrosOfText, DefinitionsHaveParametersAndAReplacement) {
  const std::vector<Token> tokens = tokens_of(
      "#define A(x, ...) __device__ f(x) \\\n  more\n#define B { // }\n#define C\n#define D (x) { }\n#undef "
      "E\n");
  const std::vector<MacroDefinition> all = macros_of(tokens);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].name, "A");
  EXPECT_TRUE(all[0].called);
  EXPECT_EQ(all[0].parameters, (std::vector<std::string_view>{"x", "__VA_ARGS__"}));
  EXPECT_EQ(all[0].replacement.size(), 6u);
  EXPECT_FALSE(all[0].braces);
  EXPECT_TRUE(all[1].braces);
  EXPECT_TRUE(all[2].replacement.empty());
  EXPECT_FALSE(all[3].called) << "the blank makes the parentheses a part of the replacement";
  EXPECT_FALSE(all[3].braces);
}

TEST_F(MacrosOfText, MarksGoThroughOtherMacros) {
  const Macros& macros = read(
      "#define HD __host__ __device__\n#define INNER HD inline\n#define K static __global__ void\n"
      "#define LOOP AGAIN\n#define AGAIN LOOP constexpr\n#define PLAIN inline\n");
  EXPECT_TRUE(macros.marks_of("INNER").device);
  EXPECT_FALSE(macros.marks_of("INNER").global);
  EXPECT_TRUE(macros.marks_of("K").global);
  EXPECT_TRUE(macros.marks_of("LOOP").constant);
  EXPECT_FALSE(macros.marks_of("PLAIN").device);
  EXPECT_TRUE(macros.marks_of("LIB_DEVICE").device) << "its header is not here";
  EXPECT_FALSE(macros.marks_of("LIB_KERNEL").global) << "a name alone is no evidence for a kernel";
}

TEST_F(MacrosOfText, EveryDefinitionOfANameCounts) {
  const Macros& macros = read("#ifdef A\n#define F inline\n#else\n#define F __device__\n#endif\n");
  EXPECT_TRUE(macros.marks_of("F").device);
  EXPECT_EQ(macros.find("F")->size(), 2u);
  EXPECT_EQ(macros.find("G"), nullptr);
}

TEST_F(MacrosOfText, AnExplicitInstantiationIsSeen) {
  const Macros& macros = read(
      "#define MAKE(T) template __global__ void k<T>(T*);\n#define MORE(T) MAKE(T) MAKE(T*);\n"
      "#define OTHER(T) extern template struct A<T>\n#define ALL MORE(int) OTHER(float);\n"
      "#define DECLARE(T) template <typename T> __global__ void k(T*);\n#define LOOP LOOP\n"
      "#define BOTH(T) template void f<T>(); template <> struct A<T> { };\n#define BODY(T) template void "
      "f<T>() { }\n"
      "#define PLUS(T) MAKE(T) int a;\n#define GIVEN(F) F(int)\n"
      "#ifdef A\n#define TWO(T) MAKE(T)\n#else\n#define TWO(T) int a;\n#endif\n");
  for (const char* name : {"MAKE", "MORE", "OTHER", "ALL"}) EXPECT_TRUE(macros.instantiates(name)) << name;
  for (const char* name : {"DECLARE", "LOOP", "BOTH", "BODY", "PLUS", "GIVEN", "TWO", "none"})
    EXPECT_FALSE(macros.instantiates(name)) << name;
}

TEST_F(MacrosOfText, TheEndOfAReplacementTellsWhatFollows) {
  const Macros& macros = read(
      "#define A(x) int x;\n#define B(x) A(x)\n#define C _Pragma(\"a\") _Pragma(\"b\")\n"
      "#define D(F) F(1)\n#define E\n#define F(x) __align__(x)\n#define G __device__\n#define H(x) A(x) int\n"
      "#define I int _Pragma(\"a\")\n#define J J\n");
  for (const char* name : {"A", "B", "C"}) EXPECT_EQ(macros.end_of(name), MacroEnd::closed) << name;
  for (const char* name : {"D", "E", "J", "none"}) EXPECT_EQ(macros.end_of(name), MacroEnd::unclear) << name;
  for (const char* name : {"F", "G", "H", "I"}) EXPECT_EQ(macros.end_of(name), MacroEnd::open) << name;
  EXPECT_TRUE(macros.completes("H"));
  EXPECT_FALSE(macros.completes("F"));
  EXPECT_TRUE(macros.reaches_pragma("I"));
  EXPECT_FALSE(macros.reaches_pragma("A"));
}

TEST_F(MacrosOfText, AllMacrosOfATextAreExpanded) {
  const Macros& macros = read(
      "#define CAT(a, b) a##b\n#define XCAT(a, b) CAT(a, b)\n#define NAME one\n#define F(x, ...) "
      "x(__VA_ARGS__)\n"
      "#define G(x, rest...) x(0, ##rest)\n#define LOOP LOOP + 1\n#define S(x) #x\n#define CALL F\n");
  const auto one = [&](std::string_view text) {
    const auto all = expansions_of(macros, text);
    return all && all->size() == 1 ? (*all)[0] : std::string("?");
  };
  EXPECT_EQ(one("CAT(NAME, _f) XCAT(NAME, _f)"), "NAME_f one_f");
  EXPECT_EQ(one("F(f, 1, (2, 3)) F(f)"), "f ( 1 , ( 2 , 3 ) ) f ( )");
  EXPECT_EQ(one("G(f) G(f, 1, 2)"), "f ( 0 ) f ( 0 , 1 , 2 )");
  EXPECT_EQ(one("LOOP"), "LOOP + 1");
  EXPECT_EQ(one("CALL(f, 1)"), "f ( 1 )");
  EXPECT_EQ(one("S(a b) F"), "\"\" F");
  for (const char* damaged : {"CAT", "CAT(", "CAT(a", "CAT()", "CAT(,,", ")CAT((", ""})
    EXPECT_NO_FATAL_FAILURE(one(damaged)) << damaged;
}

TEST_F(MacrosOfText, AnExpansionHasALimit) {
  std::string text = "#define M0(x) x x\n";
  for (int i = 1; i < 40; ++i)
    text += "#define M" + std::to_string(i) + "(x) M" + std::to_string(i - 1) + "(x) M" +
            std::to_string(i - 1) + "(x)\n";
  EXPECT_FALSE(expansions_of(read(text), "M39(a)"));
  EXPECT_TRUE(expansions_of(read("#define A 1\n#define A 2\n#define B 1\n#define B 2\n"), "A B")->size() ==
              4);
  text.clear();
  for (int i = 0; i < 65; ++i) text += "#define A " + std::to_string(i) + "\n";
  EXPECT_FALSE(expansions_of(read(text), "A"));
}

TEST_F(MacrosOfText, ACallIsExpanded) {
  const Macros& macros = read(
      "#define KERNEL(name, ...) template <typename T, __VA_ARGS__> __global__ void name##_kernel(T* x)\n"
      "#define NONE() __global__ void none()\n#define KINDS inline\n");
  EXPECT_TRUE(macros.declares_kernel("KERNEL"));
  EXPECT_FALSE(macros.declares_kernel("KINDS"));
  EXPECT_EQ(macros.expanded("KERNEL(scale, int N, bool B) { x[N] = B; }"),
            "template < typename T , int N, bool B > __global__ void scale_kernel ( T * x )  { x[N] = B; }");
  EXPECT_EQ(macros.expanded("static NONE();"), "static __global__ void none ( ) ;");
  EXPECT_EQ(macros.expanded("void f() { KERNEL(a, b) }"), "") << "only the head is expanded";
  for (const char* damaged : {"KERNEL", "KERNEL(", "KERNEL(a", "KERNEL()", "KERNEL(,,", ")KERNEL((", ""})
    EXPECT_NO_FATAL_FAILURE(macros.expanded(damaged)) << damaged;
}

}  // namespace
}  // namespace kiln::source

// The meaning of macros: marks of a function, scopes, instantiations, whole declarations.
#include "overlay/macros.hpp"

#include <gtest/gtest.h>

#include <algorithm>

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
      "#define MAKE(T) template __global__ void k<T>(T*);\n#define MORE(T) MAKE(T) MAKE(T*)\n"
      "#define DECLARE(T) template <typename T> __global__ void k(T*);\n#define LOOP LOOP\n");
  EXPECT_TRUE(macros.instantiates("MAKE"));
  EXPECT_TRUE(macros.instantiates("MORE"));
  EXPECT_FALSE(macros.instantiates("DECLARE"));
  EXPECT_FALSE(macros.instantiates("LOOP"));
  EXPECT_FALSE(macros.instantiates("none"));
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

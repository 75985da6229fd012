// The text that host_code = "cut" never takes away: a kernel may depend on it without naming it, or a reader of tokens
// may misread it.
#include <gtest/gtest.h>

#include "left_of.hpp"

namespace kiln::source {
namespace {

const std::string kHostCode = "void host() { throw 1; }\n";
const std::string kPlainKernel = "__global__ void kernel(int* a) { a[0] = 1; }\n";

TEST(SafeCut, DeviceCodeThatNothingNamesStays) {
  for (const std::string text : {
           "__device__ long (sel)(long x) { return x; }\n",
           "constexpr int lim(int a) { return a; }\n",
           "constexpr int x = N < 3, lim{2};\n",
           "__constant__ float table[4];\n",
           "struct It { };\ntypedef It alias;\ntemplate <> struct cuda::std::iterator_traits<alias> { };\n",
           "template <> inline constexpr bool is_small<int> = true;\n",
           "struct V { };\nV(int) -> V;\n",
           "__device__ int operator+(E a, E b) { return 1; }\n",
           "static_assert(sizeof(int) == 4);\n",
           "UNREAD_MACRO(1)\n",
           "UNREAD_API int f(int a) { return a; }\n",
           "template <int N, std::enable_if_t<N < 4, int> = 0> __device__ int f(int x) { return x; }\n",
           "template <int N, std::enable_if_t<N >= 4, int> = 0> __device__ int f(int x) { return x; }\n",
           "template <int N> __device__ std::enable_if_t<N < 4, int> f(int x) { return x; }\n",
       })
    EXPECT_EQ(left_of(kHostCode + text + kHostCode + kPlainKernel), text + kPlainKernel);
}

TEST(SafeCut, WhatNothingNamesAndIsNotForTheDeviceIsCut) {
  for (const std::string text : {
           "template <class T> void f(T a) { }\n",
           "template <int N, std::enable_if_t<N < 4, int> = 0> int f(int x) { return x; }\n",
           "static const std::map<int, int> names = {{1, 2}};\n",
           "struct A { __device__ int f() { return 1; } };\n",
           "__global__ void other() { }\n",
           "template __global__ void other<int>();\n",
           "PYBIND11_MODULE(a, m) { }\n",
       })
    EXPECT_EQ(left_of(text + kPlainKernel), kPlainKernel);
}

TEST(SafeCut, NothingThatMayBeADataMemberIsCut) {
  const std::string kernel = "__global__ void kernel(P* a) { a->c = 3; }\n";
  for (const std::string member : {
           "float pad aligned_to(16);",
           "float pad aligned_to(16) {1};",
           "float pad UNREAD(16) {1};",
           "bool (CALLCONV *op)(double);",
           "int get();",
       }) {
    const std::string text =
        "#define aligned_to(n) __attribute__((aligned(n)))\nstruct P {\n" + member + "\nint c;\n};\n";
    EXPECT_EQ(left_of(kHostCode + text + kernel), text + kernel);
  }
  const std::string trailing =
      "#define ALIGN(n) __attribute__((aligned(n)))\nstruct P { int c; } ALIGN(16);\n";
  EXPECT_EQ(left_of(kHostCode + trailing + kernel), trailing + kernel);
}

TEST(SafeCut, ATextThatStandsInADeclarationStaysWhole) {
  const std::string used = "OP(add)\nint f() { return 1; }\n";
  const std::string add = "struct add { };\n";
  for (const auto& [before, after] :
       {std::pair{"__device__ int run(int x) {\n", "return 1;\n}\n"}, std::pair{"enum Op : int {\n", "};\n"},
        std::pair{"__constant__ int table[] = {\n", "};\n"}}) {
    const std::string text = add + before + "#include \"ops.inc\"\n" + after + kPlainKernel;
    CutRules rules{{"kernel"}, {}, {}, {"/a/ops.inc", "/a/k.cu"}};
    const CutTexts out = cut_host_code({used, text}, rules);
    EXPECT_EQ(out.texts[0], used);
    EXPECT_EQ(out.texts[1], text) << "the words of the other text count";
    rules.unused = true;
    EXPECT_EQ(cut_host_code({used, text}, rules).texts[0], used);
  }
}

/// The text that follows may be part of the declaration.
TEST(SafeCut, NothingIsCutAfterBracketsThatCannotBePaired) {
  const std::string first = "void first() { throw 1; }\n";
  const std::string device = "__device__ void f(int* o) {\n", end = "g(o);\n}\n";
  for (const std::string body : {
           "#ifdef A\nfor (;;) {\n#else\nint i;\n#endif\no[0] = 1;\n#ifdef A\n}\n#endif\n",
           "#ifdef A\no[0] = 1; }\n#else\no[0] = 2;\n#endif\n",
           "#ifdef A\nh(o,\n#endif\n1;\n",
           "LOOP(i)\no[i] = 1; }\n",
           "NESTED(i)\no[i] = 1; }\n",
           "CLOSE\n",
       }) {
    const std::string macros =
        "#define LOOP(i) for (int i = 0; i < 3; ++i) {\n#define NESTED(i) LOOP(i)\n#define CLOSE }\n";
    const std::string text = device + body + end + kHostCode + kPlainKernel;
    EXPECT_EQ(left_of(macros + first + text), macros + text) << body;
    EXPECT_EQ(left_of(macros + first + text, kCutUnused), macros + text) << body;
  }
}

TEST(SafeCut, BracketsThatEveryBranchPairsAreRead) {
  for (const std::string text : {
           "#ifdef A\nextern \"C\" {\n#endif\n#ifdef A\n}\n#endif\n",
           "__device__ void f(int m) {\n#if A\nif (m) {\n#elif B\nif (m > 1) {\n#else\n{\n#endif\n}\n}\n",
           "__device__ void f(int m) {\n#if A\nif (m) {\n} else\n#endif\n{\n}\n}\n",
           "__device__ void f(int m) {\nif (m) {\n#if A\n} else if (m > 1) {\n#endif\n} else {\n}\n}\n",
           "#define OPEN namespace x {\n#define CLOSE }\nOPEN\n__device__ int f(int x);\nCLOSE\n",
           "#define ELSE } else {\n__device__ void f(int m) { if (m) { ELSE } }\n",
       })
    EXPECT_EQ(left_of(text + kHostCode + kPlainKernel), text + kPlainKernel);
}

TEST(SafeCut, PragmasStayInsideOfWhatIsCut) {
  EXPECT_EQ(left_of("#define OFF\nOFF\n#pragma pack(1)\nstruct Host { char a; };\n" + kPlainKernel),
            "#define OFF\n#pragma pack(1)\n" + kPlainKernel);
}

TEST(SafeCut, AHostOperatorKeepsItsHeadWithItsTypes) {
  const std::string types = "struct A { };\nstruct B { };\n";
  const std::string kernel = "__global__ void kernel(A a, int* o) { o[0] = sizeof(a + a); }\n";
  EXPECT_EQ(left_of(types + "int operator+(A, A) { throw 1; }\nint operator+(B, B) { throw 1; }\n" + kernel),
            "struct A { };\nint operator+(A, A) ;\n" + kernel);
}

TEST(SafeCut, LargeInputsTakeTimeInProportionToTheirSize) {
  std::string macros, calls;
  for (int i = 0; i < 3000; ++i) {
    macros += "#define M" + std::to_string(i) + "(x) M" + std::to_string(i + 1) + "(x) x M" +
              std::to_string(i + 1) + "(x)\n";
    calls += "M" + std::to_string(i) + "(y)\n__device__ int g();\n";
  }
  std::string braces = "int a ", less = "int b = ";
  for (int i = 0; i < 30000; ++i) {
    braces += "{},";
    less += "a<";
  }
  for (const std::string& text : {macros + calls, braces + ";\n", less + ";\n"}) left_of(text + kPlainKernel);
}

}  // namespace
}  // namespace kiln::source

// Declarations that macros make: a cut keeps each one that may change a kernel, also when no word names it.
#include <gtest/gtest.h>

#include "left_of.hpp"

namespace kiln::source {
namespace {

const std::string kTraits = "template <typename T> struct Traits { static constexpr int n = 1; };\n";
const std::string kUsesTraits = "__global__ void kernel(int* a) { a[0] = Traits<float>::n; }\n";
const std::string kSpecialise = "(T, N) template <> struct Traits<T> { static constexpr int n = N; };\n";
const std::string kHost = "void host() { throw 1; }\n";

/// The cut takes kHost away and leaves everything else.
void expect_only_host_is_cut(const std::string& before, const std::string& after) {
  EXPECT_EQ(left_of(before + kHost + after), before + after);
}

TEST(CutOfMacros, AMacroWithACompleteReplacementIsNoPartOfWhatFollows) {
  for (const std::string call : {"TraitsOf(float, 4)\n", "traits_of(float, 4)\n",
                                 "SPEC(float, 4) SPEC(int, 8)\n", "SPEC(float, 4)\n"}) {
    const std::string macro = "#define " + call.substr(0, call.find('(')) + kSpecialise;
    expect_only_host_is_cut(kTraits + macro + call, kUsesTraits);
    EXPECT_EQ(left_of(kTraits + macro + call.substr(0, call.size() - 1) + kHost + kUsesTraits),
              kTraits + macro + call.substr(0, call.size() - 1) + '\n' + kUsesTraits)
        << "also on the same line";
  }
}

TEST(CutOfMacros, AMacroWithoutArgumentsMayHaveACompleteReplacement) {
  expect_only_host_is_cut(
      kTraits + "#define EXTRA template <> struct Traits<float> { static constexpr int n = 4; };\nEXTRA\n",
      kUsesTraits);
  expect_only_host_is_cut("#define INNER using n = int;\n#define EXTRA INNER\nEXTRA\n",
                          "__global__ void kernel(n* a) { }\n");
}

TEST(CutOfMacros, AMacroThatCallsItsArgumentIsJudgedByTheExpansion) {
  for (const std::string name : {"FOR_ALL", "for_all"}) {
    const std::string macros = "#define " + name + "(F) F(float, 1) F(int, 2)\n#define SPEC" + kSpecialise;
    expect_only_host_is_cut(kTraits + macros + name + "(SPEC)\n", kUsesTraits);
  }
}

TEST(CutOfMacros, APragmaOfAMacroIsKept) {
  const std::string kernel = "__global__ void kernel(int* a) { a[0] = sizeof(P) + sizeof(Q); }\n";
  const std::string p = "struct P { char a; int b; };\n", q = "struct Q { char a; int b; };\n";
  expect_only_host_is_cut(
      "#define PACK_PUSH _Pragma(\"pack(push, 1)\")\n#define PACK_POP _Pragma(\"pack(pop)\")\n"
      "PACK_PUSH\n" +
          p + "PACK_POP\n",
      q + kernel);
  expect_only_host_is_cut("#define PP(x) _Pragma(#x)\nPP(pack(push, 1));\n" + p + "PP(pack(pop))\n",
                          q + kernel);
  expect_only_host_is_cut("_Pragma(\"pack(push, 1)\")\n" + p + "_Pragma(\"pack(pop)\")\n", q + kernel);
}

TEST(CutOfMacros, AnAttributeThatIsAMacroStaysWithItsDeclaration) {
  const std::string text =
      "#define ALIGN(n) __align__(n)\nALIGN(16)\nstruct A { int a; };\n"
      "__global__ void kernel(A* a) { }\n";
  EXPECT_EQ(left_of(text), text);
  EXPECT_EQ(
      left_of(
          "#define ALIGN(n) __align__(n)\nALIGN(16)\nstruct A { int a; };\n__global__ void kernel() {}\n"),
      "#define ALIGN(n) __align__(n)\n__global__ void kernel() {}\n");
}

TEST(CutOfMacros, AnAttributeOfTheToolkitStaysWithItsDeclaration) {
  const std::string text = "__CUDA_ALIGN__(16)\nstruct A { int a; };\n__global__ void kernel(A* a) { }\n";
  EXPECT_EQ(left_of(text), text);
}

TEST(CutOfMacros, AMacroMayBeTheHeadOfAType) {
  const std::string text =
      kTraits +
      "#define SPEC(T) template <> struct Traits<T>\nSPEC(float) { static constexpr int n = 4; };\n" +
      "#define NAME(a) a##_x\nstruct NAME(A) { int n; };\n" + kUsesTraits + "__device__ A_x a;\n";
  EXPECT_EQ(left_of(text, {{"kernel", "a"}, {}, {}}), text);
}

TEST(CutOfMacros, AMemberThatBeginsWithAMacroIsNeverCut) {
  const std::string kernel = "__global__ void kernel(P p, int* a) { a[0] = p.b; }\n";
  EXPECT_EQ(
      left_of(
          "#define field(T, n) T n;\nstruct P {\nint a; field(float, q)\nbool ok() const { return a > 0; }\n"
          "int b;\n};\n" +
          kernel),
      "#define field(T, n) T n;\nstruct P {\nint a; field(float, q)\nint b;\n};\n" + kernel);
  EXPECT_EQ(left_of("#define field(T, n) T n; int\nstruct P {\nfield(float, q) ok() const { throw 1; }\n"
                    "int b;\n};\n" +
                    kernel),
            "#define field(T, n) T n; int\nstruct P {\nfield(float, q) ok() const ;\nint b;\n};\n" + kernel);
}

TEST(CutOfMacros, AFunctionKeepsItsHeadWhenAMacroInItMakesAType) {
  const std::string macro = "#define PRE struct P { int a; }; static\n";
  const std::string kernel = "__global__ void kernel(P p) { }\n";
  EXPECT_EQ(left_of(macro + "PRE void host() { throw 1; }\n" + kernel),
            macro + "PRE void host() ;\n" + kernel);
  const std::string device = "__device__ void host() { }\n";
  EXPECT_EQ(left_of(macro + "PRE void host() { throw 1; }\n" + device + kernel),
            macro + "PRE void host() ;\n" + device + kernel);
  EXPECT_EQ(left_of(macro + "PRE int variable;\n" + kernel), macro + "PRE int variable;\n" + kernel);
}

TEST(CutOfMacros, ACallIsCutByNameWhenAllItsNamesAre) {
  const std::string macro = "#define TWO(a, b) __constant__ int a; int b;\n#define ONE(a) int a[9];\n";
  const std::string kernel = "__global__ void kernel(int* p) { p[0] = one + x + y; }\n";
  EXPECT_EQ(left_of(macro + "ONE(one)\nTWO(x, y)\n" + kernel, {{"kernel"}, {}, {"one", "y"}}),
            macro + "TWO(x, y)\n" + kernel);
}

TEST(CutOfMacros, AFunctionOrVariableHasTheNameThatItsMacroMakes) {
  const std::string kernel = "__global__ void kernel(float* a) { a[0] = expf(a[0]) + W; }\n";
  const std::string text =
      "#define DEV_FN(name) __device__ float name(float x)\n#define INT_CONST(n, v) static const int n = v\n"
      "#define JOIN(a, b) a##b\n#define CAT(a, b) JOIN(a, b)\n#define NAME expf\n#define BASE exp\n"
      "#define ANY_FN(mark, name) mark float name(float x)\n";
  for (const std::string function :
       {"DEV_FN(expf) { return x; }\n", "ANY_FN(__device__, expf) { return x; }\n",
        "__device__ float CAT(BASE, f)(float x) { return x; }\n",
        "__device__ float NAME(float x) { return x; }\n"}) {
    const std::string all = text + "namespace fast {\n" + function + "INT_CONST(W, 8);\n" + kernel + "}\n";
    EXPECT_EQ(left_of(all), all);
  }
  EXPECT_EQ(left_of(text + "DEV_FN(other) { return x; }\n" + kernel, kCutUnused), text + kernel);
}

TEST(CutOfMacros, AnEnumeratorThatAMacroMakesKeepsItsEnum) {
  const std::string text =
      "#define OPS(X) X(add) X(mul)\n#define ENTRY(n) op_##n,\nenum Op { OPS(ENTRY) };\n"
      "__global__ void kernel(int* a) { a[0] = op_mul; }\n";
  EXPECT_EQ(left_of(text), text);
}

TEST(CutOfMacros, EachDefinitionGivesNames) {
  const std::string text =
      "#ifdef A\n#define FN(n) float n(float x)\n#else\n#define FN(n) __device__ float fast_##n(float "
      "x)\n#endif\n"
      "FN(one) { return x; }\n__global__ void kernel(float* a) { a[0] = ";
  for (const std::string name : {"one", "fast_one"}) {
    const std::string all = text + name + "(1); }\n";
    EXPECT_EQ(left_of(all), all);
  }
}

TEST(CutOfMacros, ANameThatIsJoinedInTheKernelIsReached) {
  const std::string text =
      "#define F(name) name##f\n__device__ float expf(float x) { return x * 2; }\n"
      "#define CAT(a, b) a##b\n#define XCAT(a, b) CAT(a, b)\n__device__ float mul_8(float x) { return x; }\n"
      "__global__ void kernel(float* a) { a[0] = F(exp)(a[0]) + XCAT(XCAT(mul, _), 8)(a[0]); }\n";
  EXPECT_EQ(left_of(text + "__device__ float sinf(float x) { return x; }\n", kCutUnused), text);
}

TEST(CutOfMacros, OnlyAMacroThatInstantiatesAndDoesNothingElseIsCut) {
  const std::string helper = "template <typename T> __device__ void helper(T*) {}\n";
  const std::string both =
      kTraits + helper +
      "#define REG(T, N) template __device__ void helper<T>(T*); template <> struct Traits<T> { };\n"
      "REG(float, 4)\n" +
      kUsesTraits;
  EXPECT_EQ(left_of(both), both);
  const std::string redefined =
      kTraits + "#define REG" + kSpecialise +
      "REG(float, 4)\n#undef REG\n#define REG(T, N) template __device__ void kernel<T>(T*);\n" + kUsesTraits;
  EXPECT_EQ(left_of(redefined), redefined);
}

TEST(CutOfMacros, HostCodeOfMacrosIsCut) {
  for (const std::string text :
       {"#define LAUNCHER(T) void launch(T* a) { kernel<<<1, 1>>>(a); }\n", "#define LAUNCHER(T)\n",
        "#define LAUNCHER(T) static Register name_##T(#T);\n"}) {
    const std::string kernel = "__global__ void kernel(int* a) { }\n";
    EXPECT_EQ(left_of(text + "LAUNCHER(int);\nLAUNCHER(float)\n" + kernel), text + kernel);
  }
  const std::string module =
      "#define MODULE(m) static void init(Module& m); static Entry e(init); void init(Module& m)\n";
  EXPECT_EQ(left_of(module + "MODULE(m) { m.add(); }\n__global__ void kernel() { }\n"),
            module + "__global__ void kernel() { }\n");
}

}  // namespace
}  // namespace kiln::source

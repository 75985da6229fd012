// The rules by which host code is cut away from the texts of a kernel.
#include "overlay/cut.hpp"

#include <gtest/gtest.h>

#include "left_of.hpp"

namespace kiln::source {
namespace {

const std::string kKernel = "__global__ void kernel(int* a) { a[0] = used(a); }\n";

TEST(Cut, AFunctionThatNothingMentionsIsCut) {
  const std::string used = "__device__ int used(int* a) { return *a; }\n" + kKernel;
  EXPECT_EQ(left_of("int unused(int a) { return a; }\n" + used), used);
  const std::string device = "__device__ int unused(int a) { return a; }\n";
  EXPECT_EQ(left_of(device + used), device + used);
  EXPECT_EQ(left_of(device + used, kCutUnused), used);
}

TEST(Cut, AnotherKernelIsCutAndTheKernelIsKept) {
  EXPECT_EQ(left_of(kKernel + "__global__ void other(int* a) { needs_something(a); }\n"), kKernel);
}

TEST(Cut, AFunctionWithoutAnExecutionSpaceLosesItsBody) {
  EXPECT_EQ(
      left_of(
          "int used(int* a) { return launch<<<1, 1>>>(a); }\n__host__ int used(float* a) { return 1; }\n" +
          kKernel),
      "int used(int* a) ;\nint used(float* a) ;\n" + kKernel)
      << "sizeof and decltype may name it";
  const std::string overload = "__device__ int used(int* a) { return 1; }\n";
  EXPECT_EQ(left_of("int used(float* a) { return 1; }\n" + overload + kKernel),
            "int used(float* a) ;\n" + overload + kKernel);
}

TEST(Cut, ALauncherWithTheNameOfItsKernelIsCut) {
  EXPECT_EQ(left_of(kKernel + "void kernel(std::vector<int>& a) { kernel<<<1, 1>>>(a.data()); }\n"), kKernel);
}

TEST(Cut, AConstexprFunctionIsKept) {
  const std::string text = "constexpr int used(int* a) { return 1; }\n" + kKernel;
  EXPECT_EQ(left_of(text), text);
}

TEST(Cut, AMacroMayStandForAnExecutionSpace) {
  for (const std::string macro :
       {"#define HD __host__ __device__\n", "#define INNER __device__\n#define HD INNER inline\n"}) {
    const std::string text = macro + "HD int used(int* a) { return 1; }\n" + kKernel;
    EXPECT_EQ(left_of(text), text);
  }
  const std::string unknown = "MY_DEVICE_FUNCTION int used(int* a) { return 1; }\n" + kKernel;
  EXPECT_EQ(left_of(unknown), unknown) << "its header is not among the texts";
  EXPECT_EQ(left_of("#define H __host__\nH int used(int* a) { return 1; }\n" + kKernel),
            "#define H __host__\nH int used(int* a) ;\n" + kKernel);
}

TEST(Cut, AKernelThatAMacroDeclaresHasTheNameThatTheMacroGivesIt) {
  const std::string macro =
      "#define KERNEL(name, ...) template <__VA_ARGS__> __global__ void name##_k(int* a)\n";
  const std::string own = "KERNEL(own, int N) { a[N] = used(a); }\n";
  const std::string used = "__device__ int used(int* a) { return *a; }\n";
  EXPECT_EQ(
      left_of(macro + used + own + "KERNEL(other, int M) { a[M] = std::rand(); }\n", {{"own_k<3>"}, {}, {}}),
      macro + used + own);
}

TEST(Cut, ACallOfAMacroThatInstantiatesIsCut) {
  const std::string macro = "#define MAKE(T) template __global__ void other<T>(T*);\n";
  EXPECT_EQ(left_of(macro + "MAKE(int)\nMAKE(float);\n" + kKernel), macro + kKernel);
  const std::string declares = "#define DECLARE(T) __device__ void other(T*);\nDECLARE(int)\n" + kKernel;
  EXPECT_EQ(left_of(declares), declares);
}

TEST(Cut, AnOverloadSetIsKeptWhole) {
  const std::string text =
      "__device__ int used(int* a);\n__device__ int used(float* a);\ntemplate <class T> __device__ int "
      "used(T a) { return 1; }\n"
      "namespace other { __device__ int used(double* a); }\n" +
      kKernel;
  EXPECT_EQ(left_of(text), text);
}

TEST(Cut, AHostFunctionWithTheParametersOfADeviceFunctionKeepsItsHead) {
  const std::string text =
      "char used(const int *, unsigned);\n__device__ int used(const int* a, unsigned = 1);\n" + kKernel;
  EXPECT_EQ(left_of(text), text) << "an #if may take one of them away, and sizeof may choose the other";
}

TEST(Cut, AMemberOverloadOfTheHostKeepsItsHead) {
  EXPECT_EQ(
      left_of("struct B {\n__device__ double f(double x) { return x; }\nfloat f(float) { throw 1; }\n};\n"
              "__global__ void kernel(int* a) { a[0] = sizeof(B().f(1.0f)); }\n"),
      "struct B {\n__device__ double f(double x) { return x; }\nfloat f(float) ;\n};\n"
      "__global__ void kernel(int* a) { a[0] = sizeof(B().f(1.0f)); }\n");
}

TEST(Cut, AHeadWithANamespaceOfAMissingHeaderIsCut) {
  const std::string text =
      "namespace own {\nstruct A { };\n}\nnamespace other = own;\n__device__ int used(int* a);\n"
      "template <class T> int used(typename T::type a, other::A b) ;\nint used(own::A a, std::size_t b) ;\n" +
      kKernel;
  EXPECT_EQ(
      left_of(text + "lib::Tensor used(const lib::Tensor& x) { return x; }\nint used(own::A a, lib::B b);\n"),
      text);
}

TEST(Cut, AMemberOverloadWithOtherQualifiersKeepsItsHead) {
  EXPECT_EQ(left_of("struct B {\n__device__ double f() const { return 1; }\nfloat f() { throw 1; }\n};\n"
                    "__global__ void kernel(int* a) { a[0] = sizeof(B().f()); }\n"),
            "struct B {\n__device__ double f() const { return 1; }\nfloat f() ;\n};\n"
            "__global__ void kernel(int* a) { a[0] = sizeof(B().f()); }\n");
}

TEST(Cut, ADeductionGuideIsKeptWithItsName) {
  const std::string text =
      "template <typename T> struct V { T x; __device__ V(T t) : x(t) {} };\nV(int) -> V<double>;\n"
      "template <typename T, typename... U> V(T, U...) -> V<T>;\n"
      "__global__ void kernel(int* a) { V v(1); a[0] = sizeof(v); }\n";
  EXPECT_EQ(left_of(text), text);
  EXPECT_EQ(left_of("struct W { };\nW(int) -> W;\n" + kKernel, kCutUnused), kKernel);
}

TEST(Cut, TypesAndVariablesAreKeptWhenSomethingMentionsThem) {
  const std::string used =
      "using Number = int;\nstruct Inner { Number n; };\nstruct Outer { Inner inner; };\n"
      "__device__ Outer table[4];\n__global__ void kernel(int* a) { a[0] = table[1].inner.n; }\n";
  EXPECT_EQ(
      left_of(used + "using Rest = std::vector<int>;\nstruct Context { std::mutex m; };\nstd::string name;\n"
                     "template <class T> concept Host = std::is_same_v<T, int>;\nenum class Mode { on };\n"),
      used);
}

TEST(Cut, AnEnumeratorKeepsItsEnum) {
  const std::string text = "enum Mode { off, on };\n__global__ void kernel(int* a) { a[0] = on; }\n";
  EXPECT_EQ(left_of(text), text);
}

TEST(Cut, TheTextOfAMacroReachesNames) {
  const std::string text =
      "__device__ int hidden(int* a) { return 1; }\n#define used(a) hidden(a)\n" + kKernel;
  EXPECT_EQ(left_of(text), text);
}

TEST(Cut, MemberFunctionsOfAKeptClassAreCutWithoutAnExecutionSpace) {
  EXPECT_EQ(left_of("struct A {\nint n;\nstd::string text() const { return std::to_string(n); }\n"
                    "__device__ int get() const { return helper(); }\n__device__ int rest() const { return "
                    "missing(); }\n"
                    "__host__ int helper_host();\n};\n__device__ int helper() { return 1; }\n"
                    "__global__ void kernel(A a, int* b) { b[0] = a.get(); }\n",
                    kCutUnused),
            "struct A {\nint n;\n__device__ int get() const { return helper(); }\n};\n__device__ int "
            "helper() { return 1; }\n"
            "__global__ void kernel(A a, int* b) { b[0] = a.get(); }\n");
}

TEST(Cut, ConstructorsOperatorsAndDataMembersStayInTheirClass) {
  const std::string text =
      "struct A {\nA() = default;\n__device__ A(int n) : n(n) {}\nvoid (*call)(int);\nResult "
      "(*other)(Input);\nALIGNED(16) float x[4];\n"
      "constexpr bool operator<(A b) const { return n < b.n; }\nvirtual void f();\nint n;\n};\n"
      "__global__ void kernel(A a, int* b) { b[0] = a.n; }\n";
  EXPECT_EQ(left_of(text), text);
}

TEST(Cut, MemberFunctionsThatAreDefinedOutsideOfTheirClassAreKeptWithIt) {
  const std::string text =
      "template <class T>\nstruct A {\n__device__ T get() const;\nvoid host();\nT n;\n};\ntemplate <class "
      "T>\n"
      "__device__ T A<T>::get() const { return n; }\n__global__ void kernel(A<int> a, int* b) { b[0] = "
      "a.get(); }\n";
  EXPECT_EQ(left_of(text + "template <class T>\nvoid A<T>::host() {}\n"), text);
}

TEST(Cut, OperatorsOfHostCodeAreCutAndThoseOfDeviceCodeAreKept) {
  const std::string device =
      "__device__ A operator+(A a, A b) { return a; }\n__global__ void kernel(A* a) { a[0] = a[0] + a[1]; "
      "}\n";
  EXPECT_EQ(
      left_of("struct A { int n; };\nstd::ostream& operator<<(std::ostream& o, A a) { return o << a.n; }\n"
              "std::ostream& operator>>(std::ostream& o, A a);\n" +
              device),
      "struct A { int n; };\n" + device);
  EXPECT_EQ(left_of("struct A { int n; };\nstd::ostream& operator<<(std::ostream& o, A a);\n"
                    "__global__ void kernel(A* a) { }\n"),
            "struct A { int n; };\n__global__ void kernel(A* a) { }\n")
      << "nobody asks for the size of what an operator returns";
}

TEST(Cut, NamesThatTheLanguageUsesAreReached) {
  const std::string text =
      "struct Range { int n; };\n__device__ int* begin(Range& r) { return &r.n; }\n__device__ int* "
      "end(Range& r) { return &r.n + 1; }\n"
      "__global__ void kernel(Range r, int* a) { for (int n : r) a[0] += n; }\n";
  EXPECT_EQ(left_of(text), text);
}

TEST(Cut, ASpecialisationOfATemplateOfAnotherHeaderIsKeptWithItsType) {
  const std::string text =
      "struct Number { float x; };\nnamespace cub {\ntemplate <> struct Traits<Number> { using Bits = int; "
      "};\n"
      "template <> inline constexpr bool is_small<Number> = true;\n}\n"
      "__global__ void kernel(Number* a) { reduce_with_traits(a); }\n";
  EXPECT_EQ(left_of(text), text)
      << "a header of the toolkit may use it, and would take the general template without an error";
  EXPECT_EQ(left_of("struct Host { float x; };\ntemplate <> struct std::hash<Host> { std::size_t "
                    "operator()(Host h); };\n" +
                        kKernel,
                    kCutUnused),
            kKernel);
}

TEST(Cut, ExplicitInstantiationsAreAlwaysCut) {
  const std::string text = "template <class T> __global__ void kernel(T* a) { a[0] = 1; }\n";
  EXPECT_EQ(
      left_of(text + "template void kernel<int>(int*);\ntemplate __global__ void kernel<float>(float*);\n"
                     "extern template struct Context<int>;\n"),
      text);
}

TEST(Cut, MacroCallsAreCutUnlessTheirMacroMakesDeviceCode) {
  EXPECT_EQ(left_of("#define LAUNCHER(T) void launch(T* a) { kernel<<<1, 1>>>(a); "
                    "}\nLAUNCHER(int)\nLAUNCHER(float);\nTORCH_LIBRARY(a, m) { }\n" +
                    kKernel),
            "#define LAUNCHER(T) void launch(T* a) { kernel<<<1, 1>>>(a); }\n" + kKernel);
  const std::string text =
      "#define USED(T) __device__ int used(T* a) { return 1; }\nUSED(int)\n#define TYPE(T) struct T { int a; "
      "};\n"
      "TYPE(A)\n" +
      kKernel;
  EXPECT_EQ(left_of(text), text);
}

TEST(Cut, TheNamesOfKeepAreKept) {
  EXPECT_EQ(
      left_of("int pasted(int a) { return helper(a); }\nint helper(int a);\nint other() { return 1; }\n" +
                  kKernel,
              {{"kernel"}, {"pasted"}, {}}),
      "int pasted(int a) { return helper(a); }\nint helper(int a);\n" + kKernel);
}

TEST(Cut, KeepOfAMemberFunctionKeepsItInClassesThatAreKept) {
  EXPECT_EQ(left_of("struct A {\nint n;\nint value() { return n; }\n};\nstruct B {\nstd::string s;\nint "
                    "value() { return 1; }\n};\n"
                    "__global__ void kernel(A a) { }\n",
                    {{"kernel"}, {"value"}, {}}),
            "struct A {\nint n;\nint value() { return n; }\n};\n__global__ void kernel(A a) { }\n");
}

TEST(Cut, TheNamesOfCutAreCut) {
  EXPECT_EQ(left_of("__device__ int used(int* a);\n__device__ int big[4];\n__global__ void kernel(int* a) { "
                    "used(a); big[0] = 1; }\n",
                    {{"kernel"}, {}, {"used", "big"}}),
            "__global__ void kernel(int* a) { used(a); big[0] = 1; }\n");
}

TEST(Cut, KeepIsStrongerThanCut) {
  const std::string text = "int used(int* a) { return 1; }\n" + kKernel;
  EXPECT_EQ(left_of(text, {{"kernel"}, {"used"}, {"used"}}), text);
}

TEST(Cut, AStaticAssertGoesWithAnyTypeThatItMentions) {
  const std::string kept =
      "struct A { int n; };\nstatic_assert(sizeof(A) == 4, \"size\");\n__global__ void kernel(A a) { }\n";
  EXPECT_EQ(
      left_of(
          kept + "struct Host { std::string s; };\nstatic_assert(sizeof(Host) == sizeof(A) * 8, \"size\");\n",
          kCutUnused),
      kept);
}

TEST(Cut, DirectivesAreKeptInsideOfWhatIsCut) {
  EXPECT_EQ(
      left_of(
          "#pragma once\n#include <vector>\nvoid launch() {\n#if FAST\n  fast();\n#else\n  slow();\n#endif\n"
          "#pragma pack(1)\n#define STEPS \\\n  4\n#pragma unroll\n  for (;;) { }\n}\n" +
          kKernel),
      "#pragma once\n#include <vector>\n#if FAST\n#else\n#endif\n#pragma pack(1)\n#define STEPS "
      "\\\n4\n" +
          kKernel);
}

TEST(Cut, AHashInTheMiddleOfALineBecomesNoDirective) {
  EXPECT_EQ(left_of("void launch() { a; \\\n#if 1\n}\n" + kKernel), kKernel);
}

TEST(Cut, TextThatTheReaderDoesNotUnderstandIsKeptWithWhatItMentions) {
  const std::string text =
      "struct Odd { int n; };\n#ifdef A\nint f(int a) {\n#else\nint f(Odd a) {\n#endif\nreturn 1;\n}\n" +
      kKernel;
  EXPECT_EQ(left_of(text), text);
}

TEST(Cut, UsingDirectivesAndEmptyNamespacesStay) {
  EXPECT_EQ(
      left_of("namespace a {\nvoid f() { host(); }\n}\nusing namespace a;\nnamespace b = a;\n" + kKernel),
      "namespace a {\n}\nusing namespace a;\nnamespace b = a;\n" + kKernel);
}

TEST(Cut, EachKeptByteStandsWhereItStood) {
  const std::string text =
      "/* a */ void launch()\r\n{ \"}\"; /* c */ }\r\n\t__global__ void kernel(int* a) {}  // d\r\nvoid f() "
      "{}\r\n// e";
  const std::string cut = cut_one(text);
  for (std::size_t i = 0; i < text.size(); ++i) EXPECT_TRUE(cut[i] == text[i] || cut[i] == ' ') << i;
  const std::string kernel = "\t__global__ void kernel(int* a) {}  // d\r\n";
  EXPECT_EQ(cut.find(kernel), text.find(kernel));
  EXPECT_EQ(cut.find("launch"), cut.npos);
  EXPECT_EQ(cut.substr(cut.size() - 4), "// e");
}

TEST(Cut, NamesAreReachedThroughAllTexts) {
  const std::string header = "__device__ int used(int* a) { return deep(a); }\nvoid launch();\n",
                    deep = "__device__ int deep(int* a);\nint f() { }\n";
  const CutTexts out = cut_host_code({header, deep, kKernel}, {{"kernel"}, {}, {}});
  EXPECT_EQ(out.texts.at(0), "__device__ int used(int* a) { return deep(a); }\n              \n");
  EXPECT_EQ(out.texts.at(1), "__device__ int deep(int* a);\n           \n");
  EXPECT_EQ(out.texts.at(2), kKernel);
  EXPECT_EQ(out.names, (std::set<std::string>{"launch", "f"}));
}

TEST(Cut, NamesThatWereCutAreTheOnesWithoutAnyKeptDeclaration) {
  const CutTexts out = cut_host_code({"int used(int* a) { return 1; }\n__device__ int used(float* "
                                      "a);\nstruct Host { int f() { return 1; } };\n" +
                                      kKernel},
                                     {{"kernel"}, {}, {}});
  EXPECT_EQ(out.names, (std::set<std::string>{"Host", "f"}));
}

TEST(Cut, AKeptFunctionWithoutAnExecutionSpaceIsReported) {
  EXPECT_FALSE(
      cut_host_code({"__device__ int used(int*);\nint launch() { }\n" + kKernel}, {{"kernel"}, {}, {}})
          .unmarked);
  EXPECT_TRUE(
      cut_host_code({"constexpr int used(int*) { return 1; }\n" + kKernel}, {{"kernel"}, {}, {}}).unmarked);
  EXPECT_TRUE(
      cut_host_code({"int used(int*) { return 1; }\n" + kKernel}, {{"kernel"}, {"used"}, {}}).unmarked);
}

TEST(Cut, TheWordsOfANameExpressionAreRoots) {
  const std::string text = "struct Tile { int n; };\ntemplate <class T> __global__ void kernel(int* a) { }\n";
  EXPECT_EQ(left_of(text + "struct Other { };\n", {{"lib::kernel<Tile>"}, {}, {}}), text);
}

TEST(Cut, NothingIsCutTwiceDifferently) {
  const std::string text =
      "void launch() { }\nstruct A { int n; std::string s() { return {}; } };\n__global__ void kernel(A a) { "
      "}\n";
  const std::string once = cut_one(text);
  EXPECT_EQ(cut_one(once), once);
}

TEST(Cut, AHostConstructorLosesItsBodyAndItsInitialisers) {
  const std::string before =
      "struct P {\nP(Host& h) : v(h.data()), w{1} { h.use(); }\nvirtual void set(int v) { throw 1; }\n"
      "__device__ P(int) : v(0), w(2) {}\nP() = default;\n~P() {}\nfloat* v;\nint w;\n};\n"
      "__global__ void kernel(P p) { p.w = 1; }\n";
  EXPECT_EQ(left_of(before),
            "struct P {\nP(Host& h) ;\nvirtual void set(int v) {}\n__device__ P(int) : v(0), w(2) {}\n"
            "P() = default;\n~P() {}\nfloat* v;\nint w;\n};\n"
            "__global__ void kernel(P p) { p.w = 1; }\n");
}

}  // namespace
}  // namespace kiln::source

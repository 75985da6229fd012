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

/// Each kernel asks for the last name of the text before it.
TEST(SafeCut, DeviceCodeWithoutItsOwnMarksStays) {
  const std::string a =
      "template <class T> struct A {\n__device__ A();\n__device__ int g(T);\n"
      "__device__ int operator()(T);\n__device__ operator int();\n__device__ ~A();\n};\n";
  const std::string kernel = "__global__ void kernel(A<int>* a) { a->g(1); }\n";
  for (const std::string text : {
           "template <> int A<int>::g(int x) { return 2; }\n",
           "template <> A<int>::A() { }\n",
           "template <> A<int>::~A() { }\n",
           "template <> int A<int>::operator()(int x) { return 2; }\n",
           "template <> A<int>::operator int() { return 2; }\n",
           "#define SPECIALISE template <>\nSPECIALISE int A<int>::g(int x) { return 2; }\n",
           "template <class T> int A<T>::g(T x) { return 2; }\n",
           "template <class T> __device__ int f(T x) { return 1; }\ntemplate <> int f(A<int> x) { return 2; "
           "}\n"
           "__device__ int used(A<int> a) { return f(a); }\n",
           "__device__ int f(A<int>);\nint f(A<int> x) { return 1; }\nint f(float x) ;\n"
           "__device__ int used(A<int> a) { return f(a); }\n",
           "__attribute__((device)) int unnamed() { return 2; }\n",
           "#define DEVICE_CODE __attribute__((device))\nDEVICE_CODE int unnamed() { return 2; }\n",
           "template <class T> __device__ A<T> operator+(A<T> a, A<T> b) { return a; }\n",
       })
    EXPECT_EQ(left_of(kHostCode + a + text + kernel), a + text + kernel);
  const std::string own =
      "template <class T> __global__ void kernel(T* a) { }\n"
      "template <> void kernel<float>(float* a) { a[0] = 1; }\n";
  EXPECT_EQ(left_of(own + kHostCode), own);
}

TEST(SafeCut, ASpecialisationOfAHostTemplateIsCut) {
  const std::string a = "struct A {\ntemplate <class T> void g(T);\n__device__ int n();\n};\n";
  const std::string kernel = "__global__ void kernel(A* a) { }\n";
  EXPECT_EQ(left_of(a +
                    "template <class T> T zero() { throw 1; }\ntemplate <> int zero<int>() { throw 1; }\n"
                    "template <> void A::g<int>(int) { throw 1; }\n"
                    "template <> std::istream& operator>> <A>(std::istream& in, B<A>& a) { return in; }\n"
                    "template <class T> __device__ T one() ;\nstruct B { };\n" +
                    kernel),
            a + "template <class T> __device__ T one() ;\n" + kernel);
}

TEST(SafeCut, AHostMemberThatIsDefinedOutsideOfItsClassIsCut) {
  const std::string text =
      "struct A {\nint x;\n__device__ A(int x) : x(x) {}\nA(const A&) noexcept;\n};\n"
      "struct D {\nD(int n);\nint m;\n};\n__device__ D* d;\n";
  const std::string kernel = "__global__ void kernel(A* a) { }\n";
  EXPECT_EQ(left_of(text + "A::A(const A& o) { throw 1; }\nD::D(int n) { throw 1; }\n" + kernel),
            text + kernel);
  const std::string other = "struct B {\n__device__ void run();\n};\nstruct C {\nvoid run();\nB b;\n};\n";
  const std::string device = "__global__ void kernel(C* a) { a->b.run(); }\n";
  EXPECT_EQ(left_of(other + "void C::run() { throw 1; }\n" + device), other + device) << "B is another class";
}

TEST(SafeCut, AnExplicitInstantiationWithLaunchBoundsStays) {
  const std::string text =
      "#define BOUNDS __launch_bounds__(64)\n#define MAKE(T) template __global__ void BOUNDS kernel<T>(T*);\n"
      "template <class T> __global__ void kernel(T* a) { }\n"
      "template <class T> __global__ void other(T* a) { }\n"
      "template __global__ void __launch_bounds__(64, 8) kernel<float>(float*);\n"
      "template __global__ void BOUNDS kernel<double>(double*);\n"
      "template __global__ void __maxnreg__(40) kernel<char>(char*);\nMAKE(int)\n";
  EXPECT_EQ(left_of(text + "template __global__ void __launch_bounds__(64) other<int>(int*);\n"
                           "template __global__ void kernel<short>(short*);\n"),
            text.substr(0, text.find("template <class T> __global__ void other")) +
                text.substr(text.find("template __global__ void __launch")));
}

/// The bodies of host functions go: each row has what stays.
TEST(SafeCut, HostFunctionsThatSizeofMayChooseKeepTheirHeads) {
  const std::string kernel =
      "struct A { };\n__global__ void kernel(A a, int* o) { o[0] = sizeof(used(a)); }\n";
  for (const auto& [head, after] : std::initializer_list<std::pair<std::string, std::string>>{
           {"float2 operator+(float2 a, float2 b)", ""},
           {"template <class T> int operator+(const T& a, const T& b)", ""},
           {"template <class... P> int used(typename P::type*... p)", ""},
           {"namespace x { inline namespace v1 { struct B { }; }\nint used(v1::B b)", "\n}"},
           {"#define OPEN namespace lib {\nOPEN\nstruct B { };\n}\nint used(lib::B b)", ""},
           {"#define NAME(x) lib_##x\nnamespace NAME(x) { struct B { }; }\nint used(lib_x::B b)", ""},
           {"using namespace nvcuda;\nint used(wmma::fragment& b)", ""},
           {"namespace cuda {\nint used(chrono::seconds b)", "\n}"},
           {"struct C {\nint m;\nint kernel() const", "\n};\n__device__ C c;\n__device__ int x = c.kernel()"},
           {"void kernel(const char* text)", "\n__device__ int x = sizeof(kernel(\"\"))"},
       }) {
    const std::string end = after.find(';') != after.npos ? after + ";\n" : after + "\n";
    EXPECT_EQ(left_of(head + " { throw 1; }" + end + kernel), head + " ;" + end + kernel);
  }
}

TEST(SafeCut, AHostFunctionThatReturnsAutoKeepsItsBody) {
  for (const std::string text : {
           "auto used(A a) { return 1; }\n",
           "decltype(auto) used(A a) { return 1; }\n",
           "Integral auto used(A a) { return 1; }\n",
           "#define PLACEHOLDER auto\nPLACEHOLDER used(A a) { return 1; }\n",
           "auto operator-(A a) { return 1; }\n",
           "struct B {\nauto used() const { return n; }\nauto operator()(int x) const { return n; }\n"
           "auto operator->() { return this; }\nint n;\n};\n__device__ B b;\n",
       }) {
    const std::string all =
        "struct A { };\n" + text + "__global__ void kernel(A a, int* o) { o[0] = sizeof(used(a)); }\n";
    EXPECT_EQ(left_of(kHostCode + all), all);
  }
  EXPECT_EQ(
      left_of("auto used(int a) -> int { throw 1; }\n__device__ int x = sizeof(used(1));\n" + kPlainKernel),
      "auto used(int a) -> int ;\n__device__ int x = sizeof(used(1));\n" + kPlainKernel);
}

TEST(SafeCut, AVirtualFunctionKeepsAnEmptyBody) {
  const std::string rest = "int n;\n};\n", kernel = "__global__ void kernel(P* p) { p->n = 1; }\n";
  EXPECT_EQ(
      left_of(
          "#define API_VIRTUAL virtual\nstruct P {\nAPI_VIRTUAL void dump() { throw 1; }\nP() { throw 1; }\n"
          "virtual ~P();\nvirtual int size() const;\n" +
          rest + "P::~P() { throw 1; }\nint P::size() const { throw 1; }\n" + kernel),
      "#define API_VIRTUAL virtual\nstruct P {\nAPI_VIRTUAL void dump() {}\nP() ;\n"
      "virtual ~P();\nvirtual int size() const;\n" +
          rest + "P::~P() {}\nint P::size() const {}\n" + kernel);
}

TEST(SafeCut, AnEmptyBodyTakesThePlaceOfNoLineEnd) {
  const std::string head = "struct P {\nvirtual void dump()\n{\n";
  const std::string rest = "}\nint n;\n};\n__global__ void kernel(P* p) { p->n = 1; }\n";
  const std::string text = head + "throw 1;\n" + rest;
  EXPECT_EQ(cut_host_code({text}, {{"kernel"}, {}, {}}).texts,
            std::vector<std::string>{head + "        \n" + rest});
}

TEST(SafeCut, OneDeclarationMayDeclareSeveralNames) {
  for (const std::string text : {
           "const int N(4), M = 8;\n__device__ int f() { return M; }\n",
           "const int N(4), M{8};\n__device__ int f() { return M; }\n",
           "struct A { };\nnamespace ops {\n__device__ A operator*(A a, A b) { return a; }\n}\n"
           "using ops::operator*;\n",
       })
    EXPECT_EQ(left_of(text + kHostCode + kPlainKernel), text + kPlainKernel);
}

TEST(SafeCut, AnEnumWithoutItsEnumeratorsHasItsOwnName) {
  const std::string kernel = "__global__ void kernel(Mode* a) { a[0] = Mode(sizeof(Kind)); }\n";
  const std::string text =
      "enum Mode : int;\nnamespace in {\nenum Mode : unsigned char;\nenum class Kind : std::int16_t;\n" +
      kernel + "}\n";
  EXPECT_EQ(left_of(text + "enum Other : long;\n" + kHostCode), text);
  EXPECT_EQ(left_of(text + "enum Other : long;\n" + kHostCode, kCutUnused), text);
}

/// A name without lower-case letters in a head may be a macro that says __device__.
TEST(SafeCut, AConstructorOfAClassInCapitalsIsAHostFunction) {
  const std::string kernel = "__global__ void kernel(BVH* a) { a->n = 1; }\n";
  EXPECT_EQ(left_of("class BVH {\nBVH(int n) : n(n) { throw 1; }\nBVH();\nexplicit BVH(float x);\nint "
                    "n;\n};\nBVH::BVH() { throw 1; }\nBVH::BVH(float x) : n(x) { throw 1; }\n" +
                    kernel),
            "class BVH {\nBVH(int n) ;\nBVH();\nexplicit BVH(float x);\nint n;\n};\n" + kernel);
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

TEST(SafeCut, ADeclarationWithAPragmaThatLastsStaysWhole) {
  const std::string macro = "#define PACK(x) _Pragma(#x)\n#define UNROLL _Pragma(\"unroll\")\n";
  for (const std::string text : {
           "struct Host { _Pragma(\"pack(push, 1)\") char a; int z; };\n",
           "void pop() { _Pragma(\"pack(pop)\") }\n",
           "struct Host { PACK(pack(1)) char a; };\n",
       })
    EXPECT_EQ(left_of(macro + text + kHostCode + kPlainKernel), macro + text + kPlainKernel);
  for (const std::string text : {
           "void f() { _Pragma(\"omp parallel for\") for (;;) { } }\n",
           "void f() { UNROLL for (;;) { } PACK(unroll 4) for (;;) { } }\n",
           "void f() { _Pragma(\"GCC diagnostic push\") }\n",
       })
    EXPECT_EQ(left_of(macro + text + kPlainKernel), macro + kPlainKernel);
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
